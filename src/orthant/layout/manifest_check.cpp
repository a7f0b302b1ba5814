// Proof that a manifest describes whole tensors. See Note [Coverage].
//
// Note [Coverage]: pieces that lie inside the shape, do not overlap and hold as many elements as the tensor cover it
// exactly. Pieces are grouped by box: in a group, sorted ranges overlap only their neighbours. Groups are swept along
// the dim with the most different offsets, and only where two boxes really meet are their pieces compared one by one.
// What a mesh writes has equal or disjoint boxes, so that never happens there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/files/xxhash.h"
#include "orthant/layout/manifest.h"
#include "orthant/layout/pieces.h"

namespace orthant {
namespace {

constexpr const char* kDamaged = "the checkpoint is damaged or incomplete: use another one";

[[noreturn]] void refuse(const std::string& path, const std::string& message, std::string remedy = kDamaged) {
  throw DataError(fmt::format("{}: {}", path, printable(message)), {.remedy = std::move(remedy)});
}

// "at [0, 4] of lengths [8, 4] range [0, 16) in rank-3.safetensors".
std::string piece_text(const ManifestPiece& piece) {
  std::string text =
      fmt::format("at [{}] of lengths [{}]", fmt::join(piece.offsets, ", "), fmt::join(piece.lengths, ", "));
  if (piece.range) text += fmt::format(" range [{}, {})", piece.range->begin, piece.range->end);
  return fmt::format("{} in {}", text, piece.file);
}

std::int64_t checked_elements(const ManifestTensor& tensor, const std::string& path) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
      refuse(path, fmt::format("tensor {}: no tensor has shape [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
    }
  }
  return elements;
}

void check_inside(const ManifestTensor& tensor, const ManifestPiece& piece, const std::string& path) {
  const std::size_t dims = tensor.shape.size();
  bool inside = piece.offsets.size() == dims && piece.lengths.size() == dims;
  std::int64_t elements = 1;
  for (std::size_t d = 0; inside && d < dims; ++d) {
    inside = piece.offsets[d] >= 0 && piece.lengths[d] >= 0 && piece.lengths[d] <= tensor.shape[d] &&
             piece.offsets[d] <= tensor.shape[d] - piece.lengths[d];
    elements *= inside ? piece.lengths[d] : 1;
  }
  if (!inside) {
    refuse(path, fmt::format("tensor {} of shape [{}]: the piece {} exceeds the shape", tensor.name,
                             fmt::join(tensor.shape, ", "), piece_text(piece)));
  }
  if (piece.range && (piece.range->begin < 0 || piece.range->end < piece.range->begin || piece.range->end > elements)) {
    refuse(path, fmt::format("tensor {}: the piece {} has a range outside its {} elements", tensor.name,
                             piece_text(piece), elements));
  }
}

// A piece of the manifest as the geometry knows it.
struct PieceSpan {
  Piece piece;
  Range span;
  const ManifestPiece* source;
};

[[noreturn]] void refuse_overlap(const ManifestTensor& tensor, const PieceSpan& a, const PieceSpan& b,
                                 const std::string& path) {
  refuse(path, fmt::format("tensor {}: the pieces {} and {} overlap", tensor.name, piece_text(*a.source),
                           piece_text(*b.source)));
}

// Non-empty pieces, those of one box side by side and by range.
std::vector<PieceSpan> piece_spans(const ManifestTensor& tensor) {
  std::vector<PieceSpan> all;
  for (const ManifestPiece& piece : tensor.pieces) {
    Piece place{.tensor = tensor.name, .offsets = piece.offsets, .lengths = piece.lengths, .range = piece.range};
    const Range span = place.span();
    if (!span.empty()) all.push_back({std::move(place), span, &piece});
  }
  std::ranges::sort(all, [](const PieceSpan& a, const PieceSpan& b) {
    return std::tie(a.piece.offsets, a.piece.lengths, a.span.begin) <
           std::tie(b.piece.offsets, b.piece.lengths, b.span.begin);
  });
  return all;
}

bool same_box(const PieceSpan& a, const PieceSpan& b) {
  return a.piece.offsets == b.piece.offsets && a.piece.lengths == b.piece.lengths;
}

bool boxes_meet(const PieceSpan& a, const PieceSpan& b) {
  for (std::size_t d = 0; d < a.piece.offsets.size(); ++d) {
    if (a.piece.offsets[d] >= b.piece.offsets[d] + b.piece.lengths[d] ||
        b.piece.offsets[d] >= a.piece.offsets[d] + a.piece.lengths[d]) {
      return false;
    }
  }
  return true;
}

// Pieces [begin, end) of the sorted list, all of one box.
struct Group {
  std::size_t begin;
  std::size_t end;
};

std::vector<Group> grouped(const ManifestTensor& tensor, const std::vector<PieceSpan>& all, const std::string& path) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || !same_box(all[i - 1], all[i])) {
      groups.push_back({i, i + 1});
      continue;
    }
    if (all[i - 1].span.end > all[i].span.begin) refuse_overlap(tensor, all[i - 1], all[i], path);
    groups.back().end = i + 1;
  }
  return groups;
}

// The dim along which groups have the most different offsets.
std::size_t sweep_dim(const std::vector<PieceSpan>& all, const std::vector<Group>& groups, std::size_t dims) {
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t d = 0; d < dims; ++d) {
    std::set<std::int64_t> offsets;
    for (const Group& group : groups) offsets.insert(all[group.begin].piece.offsets[d]);
    if (offsets.size() > most) {
      most = offsets.size();
      best = d;
    }
  }
  return best;
}

void compare_groups(const ManifestTensor& tensor, const std::vector<PieceSpan>& all, Group a, Group b,
                    const std::string& path) {
  for (std::size_t i = a.begin; i < a.end; ++i) {
    for (std::size_t j = b.begin; j < b.end; ++j) {
      if (!intersect(all[i].piece, all[j].piece).empty()) refuse_overlap(tensor, all[i], all[j], path);
    }
  }
}

void check_boxes(const ManifestTensor& tensor, const std::vector<PieceSpan>& all, std::vector<Group> groups,
                 const std::string& path) {
  if (groups.size() < 2) return;
  const std::size_t dim = sweep_dim(all, groups, tensor.shape.size());
  const auto offset = [&](const Group& group) { return all[group.begin].piece.offsets[dim]; };
  std::ranges::sort(groups, {}, [&](const Group& group) { return std::pair(offset(group), group.begin); });
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const PieceSpan& first = all[groups[i].begin];
    const std::int64_t end = offset(groups[i]) + first.piece.lengths[dim];
    for (std::size_t j = i + 1; j < groups.size() && offset(groups[j]) < end; ++j) {
      if (boxes_meet(first, all[groups[j].begin])) compare_groups(tensor, all, groups[i], groups[j], path);
    }
  }
}

bool plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

bool is_hexadecimal(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void check_file(const ManifestFile& file, bool has_id, const std::string& path) {
  if (!plain_file_name(file.name)) {
    refuse(path, fmt::format("file \"{}\": a file of a checkpoint lies in its folder", file.name));
  }
  const auto is_hash = [](const std::string& text) { return is_hexadecimal(text, 16); };
  const auto blocks = static_cast<std::int64_t>(file.xxh64.size());
  if (file.bytes < 0 || !std::ranges::all_of(file.xxh64, is_hash) || blocks != num_hashed_blocks(file.bytes)) {
    refuse(path, fmt::format("file {}: expected a size and for each {} MiB an xxh64 of 16 hexadecimal digits, found {} "
                             "bytes and [{}]",
                             file.name, kHashedBlockBytes >> 20, file.bytes, fmt::join(file.xxh64, ", ")));
  }
  const auto is_tag = [](const std::string& text) { return is_hexadecimal(text, 64); };
  const bool tagged = !file.hmac.empty();
  if (tagged != has_id || (tagged && file.hmac.size() != file.xxh64.size()) ||
      !std::ranges::all_of(file.hmac, is_tag)) {
    refuse(path, fmt::format("file {}: expected an hmac of 64 hexadecimal digits beside each xxh64 where the manifest "
                             "has an id, and none without one; found {}",
                             file.name, file.hmac.size()));
  }
}

}  // namespace

void check_coverage(const ManifestTensor& tensor, const std::string& path) {
  const std::int64_t elements = checked_elements(tensor, path);
  for (const ManifestPiece& piece : tensor.pieces) check_inside(tensor, piece, path);
  const std::vector<PieceSpan> all = piece_spans(tensor);
  check_boxes(tensor, all, grouped(tensor, all, path), path);
  std::int64_t covered = 0;  // no overflow: pieces are disjoint parts of the shape
  for (const PieceSpan& piece : all) covered += piece.span.size();
  if (covered != elements) {
    refuse(path, fmt::format("tensor {} of shape [{}]: its {} pieces hold {} of {} elements", tensor.name,
                             fmt::join(tensor.shape, ", "), tensor.pieces.size(), covered, elements));
  }
}

void check_manifest(const Manifest& manifest, const std::string& path) {
  if (std::min({manifest.step, manifest.epoch, manifest.position, manifest.samples_seen}) < 0) {
    refuse(path, fmt::format("step {}, epoch {}, position {} and samples_seen {} must not be negative", manifest.step,
                             manifest.epoch, manifest.position, manifest.samples_seen));
  }
  if (!manifest.id.empty() && !is_hexadecimal(manifest.id, 32)) {
    refuse(path, fmt::format("its id has 32 hexadecimal digits, found \"{}\"", manifest.id));
  }
  std::set<std::string_view> files;
  for (const ManifestFile& file : manifest.files) {
    check_file(file, !manifest.id.empty(), path);
    if (!files.insert(file.name).second) refuse(path, fmt::format("file {} is listed twice", file.name));
  }
  // Names reach terminals and logs: none may move a cursor or fake a line there.
  const auto check_name = [&](std::string_view kind, const std::string& name) {
    if (printable(name) != name)
      refuse(path, fmt::format("{} {}: a name without control characters was expected", kind, name));
  };
  for (const ManifestFile& file : manifest.files) check_name("file", file.name);
  for (const ManifestTensor& tensor : manifest.tensors) check_name("tensor", tensor.name);
  for (const auto& [alias, name] : manifest.tied) check_name("tied", alias);
  check_name("mesh", manifest.mesh);
  std::set<std::string_view> names;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!names.insert(tensor.name).second) refuse(path, fmt::format("tensor {} is listed twice", tensor.name));
    for (const ManifestPiece& piece : tensor.pieces) {
      if (files.contains(piece.file)) continue;
      refuse(path, fmt::format("tensor {}: a piece lies in {}, which is not among the manifest's {} files", tensor.name,
                               piece.file, files.size()));
    }
    check_coverage(tensor, path);
  }
  for (const auto& [alias, name] : manifest.tied) {
    if (names.contains(alias)) refuse(path, fmt::format("tied {}: it is also a tensor of its own", alias));
    if (!names.contains(name)) refuse(path, fmt::format("tied {}: its owner {} is no tensor", alias, name));
  }
}

}  // namespace orthant
