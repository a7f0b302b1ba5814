#include "orthant/layout/pieces.h"

#include <utility>

#include "orthant/layout/expert_view.h"

namespace orthant {
namespace {

std::int64_t product(const std::vector<std::int64_t>& lengths, std::size_t from = 0) {
  std::int64_t elements = 1;
  for (std::size_t d = from; d < lengths.size(); ++d) elements *= lengths[d];
  return elements;
}

// `local_begin` is where element 0 of the box lies, or would lie if the box were contiguous in the buffer.
void add_piece(std::vector<Piece>& pieces, const FlatEntry& entry, const TensorBox& box, Range inside,
               std::int64_t local_begin) {
  if (inside.empty()) return;
  Piece piece{.tensor = entry.parameter,
              .offsets = box.offsets,
              .lengths = box.lengths,
              .range = inside,
              .local_offset = local_begin + inside.begin};
  if (inside == Range{0, product(box.lengths)}) piece.range.reset();
  pieces.push_back(std::move(piece));
}

// One row of the local tensor is one index of the dims before entry.dim: the boxes' parts of it follow each other.
// Writes the pieces of `part`, which counts from the entry's first element. `clip` holds per box what may be written.
void add_pieces(std::vector<Piece>& pieces, const FlatEntry& entry, Range part, const std::vector<Range>& clip) {
  const auto dim = static_cast<std::size_t>(entry.dim);
  const std::int64_t row = product(entry.shape, dim);
  if (entry.elements == 0 || part.empty()) return;
  if (entry.boxes.size() == 1) {
    add_piece(pieces, entry, entry.boxes[0], common(part, clip[0]), entry.offset);
    return;
  }
  for (std::int64_t r = part.begin / row; r * row < part.end; ++r) {
    std::int64_t begin = r * row;
    for (std::size_t b = 0; b < entry.boxes.size(); ++b) {
      const std::int64_t run = product(entry.boxes[b].lengths, dim);
      const Range met = common(part, {begin, begin + run});
      const std::int64_t shift = r * run - begin;  // from local places to places in the box
      add_piece(pieces, entry, entry.boxes[b], common({met.begin + shift, met.end + shift}, clip[b]),
                entry.offset - shift);
      begin += run;
    }
  }
}

std::vector<Range> whole_boxes(const FlatEntry& entry) {
  std::vector<Range> clip;
  for (const TensorBox& box : entry.boxes) clip.push_back({0, product(box.lengths)});
  return clip;
}

// The entry's part of a range of the buffer, counted from the entry's first element.
Range part_of(const FlatEntry& entry, Range part) {
  const Range met = common(part, entry.range());
  return {met.begin - entry.offset, met.end - entry.offset};
}

// Elements [share.begin, share.end) of the pieces laid end to end.
std::vector<Piece> share_of(const std::vector<Piece>& pieces, Range share) {
  std::vector<Piece> taken;
  std::int64_t begin = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t elements = piece.elements();
    const Range met = common(share, {begin, begin + elements});
    if (!met.empty()) {
      Piece part = piece;
      if (met.size() != elements) {
        const std::int64_t first = piece.span().begin;
        part.range = {first + met.begin - begin, first + met.end - begin};
        part.local_offset += met.begin - begin;
      }
      taken.push_back(std::move(part));
    }
    begin += elements;
  }
  return taken;
}

// The elements of `range`, which counts in row-major order of the box from dim `dim` on; dims before it have length 1.
void add_boxes(std::vector<TensorBox>& boxes, const TensorBox& box, std::size_t dim, Range range) {
  if (range.empty()) return;
  const std::int64_t total = product(box.lengths, dim);
  if (range == Range{0, total}) {
    boxes.push_back(box);
    return;
  }
  const std::int64_t inner = total / box.lengths[dim];
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    TensorBox part = box;
    part.offsets[dim] += first;
    part.lengths[dim] = count;
    return part;
  };
  const std::int64_t first = range.begin / inner;
  const std::int64_t last = (range.end - 1) / inner;
  if (first == last) {
    add_boxes(boxes, rows(first, 1), dim + 1, {range.begin - first * inner, range.end - first * inner});
    return;
  }
  const std::int64_t whole_from = (range.begin + inner - 1) / inner;
  const std::int64_t whole_to = range.end / inner;
  if (whole_from > first) add_boxes(boxes, rows(first, 1), dim + 1, {range.begin - first * inner, inner});
  if (whole_to > whole_from) boxes.push_back(rows(whole_from, whole_to - whole_from));
  if (whole_to <= last) add_boxes(boxes, rows(last, 1), dim + 1, {0, range.end - last * inner});
}

}  // namespace

std::vector<TensorBox> boxes_of(const Piece& piece, const Shape& global_shape) {
  std::vector<TensorBox> boxes;
  add_boxes(boxes, {global_shape, piece.offsets, piece.lengths}, 0, piece.span());
  return boxes;
}

Range Piece::span() const {
  return range ? *range : Range{0, product(lengths)};
}

std::vector<Piece> pieces_of(const FlatBuffer& buffer, Range part) {
  std::vector<Piece> pieces;
  for (const FlatEntry& entry : buffer.entries) add_pieces(pieces, entry, part_of(entry, part), whole_boxes(entry));
  return pieces;
}

std::vector<Piece> pieces_to_write(const FlatBuffer& buffer, const Mesh& parameter_mesh, int rank) {
  const Mesh mesh = mesh_of(buffer, parameter_mesh);
  const Coordinate at = mesh.coordinate(rank);
  const Range shard = buffer.shard(at[Axis::fsdp]);
  std::vector<Piece> pieces;
  std::int64_t total = 0;
  for (const FlatEntry& entry : buffer.entries) {
    std::vector<Range> clip = whole_boxes(entry);
    for (std::size_t b = 0; b < clip.size(); ++b) {
      const Range holders = entry.holders[b];
      clip[b] =
          balanced_range(clip[b].end, static_cast<int>(holders.size()), static_cast<int>(at[Axis::tp] - holders.begin));
    }
    add_pieces(pieces, entry, part_of(entry, shard), clip);
  }
  for (const Piece& piece : pieces) total += piece.elements();
  const int replicas = mesh.degree(Axis::dp) * mesh.degree(Axis::cp);
  const int replica = at[Axis::dp] * mesh.degree(Axis::cp) + at[Axis::cp];
  return share_of(pieces, balanced_range(total, replicas, replica));
}

}  // namespace orthant
