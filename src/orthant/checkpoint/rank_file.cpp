#include "orthant/checkpoint/rank_file.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/files/whole_file.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/runtime/finite_watch.h"
#include "orthant/shm/copy.h"

namespace orthant {
namespace {

// Where a rank's flat tensors stand in its list: parameters of all buffers, then each state of the trainable ones.
struct FlatPlace {
  std::size_t prefix = 0;  // of saved_prefixes()
  std::size_t buffer = 0;
};

template <typename IsTrainable>
std::vector<FlatPlace> flat_places(std::size_t prefixes, std::size_t buffers, const IsTrainable& trainable) {
  std::vector<FlatPlace> places;
  for (std::size_t p = 0; p < prefixes; ++p) {
    for (std::size_t b = 0; b < buffers; ++b) {
      if (p == 0 || trainable(b)) places.push_back({p, b});
    }
  }
  return places;
}

std::span<const std::byte> bytes_of(const at::Tensor& owned, std::int64_t offset, std::int64_t elements) {
  const auto size = static_cast<std::size_t>(owned.element_size());
  const auto* data = static_cast<const std::byte*>(owned.const_data_ptr());
  return {data + static_cast<std::size_t>(offset) * size, static_cast<std::size_t>(elements) * size};
}

std::unique_ptr<SafetensorsWriter> make_writer(const RankFile& file, const std::filesystem::path& folder,
                                               const CheckpointSeal& seal) {
  std::vector<TensorEntry> entries;
  for (const auto& part : file.parts) entries.push_back(part.entry);
  return std::make_unique<SafetensorsWriter>(folder / file.name, std::move(entries),
                                             SafetensorsMetadata{{"format", "orthant"}}, seal.tags_of(file.name),
                                             /*must_be_new=*/true);
}

// A checkpoint is there to go on from: one with values that are not finite would be worse than none.
void check_finite(const at::Tensor& values, const RankFile::Part& part) {
  if (all_finite(values)) return;
  throw DataError(fmt::format("{} holds values that are not finite: it is not saved", part.tensor),
                  {.remedy = "resume from an older checkpoint"});
}

// In the range that the rank owns.
std::int64_t first_element(const RankFile::Part& part, const SavedFlat& saved) {
  return part.piece.local_offset - saved.parameters->owned().begin;
}

}  // namespace

std::vector<std::string> saved_prefixes(const CheckpointedTensors& tensors) {
  std::vector<std::string> prefixes = {""};
  for (const auto& state : tensors.states) {
    prefixes.push_back(fmt::format("{}{}.", kOptimizerPrefix, state.name));
  }
  return prefixes;
}

std::vector<SavedFlat> saved_flats(const CheckpointedTensors& tensors) {
  std::vector<SavedFlat> saved;
  const auto& buffers = tensors.parameters->buffers();
  const auto prefixes = saved_prefixes(tensors);
  const auto trainable = [&](std::size_t b) { return buffers[b]->trainable(); };
  for (const auto& [p, b] : flat_places(prefixes.size(), buffers.size(), trainable)) {
    const auto owned = p == 0 ? buffers[b]->master() : MasterValues(tensors.states[p - 1].buffers[b]);
    saved.push_back({buffers[b].get(), owned, prefixes[p]});
  }
  return saved;
}

RankFile plan_file(const CheckpointedTensors& tensors, int rank) {
  RankFile file{fmt::format("rank-{}.safetensors", rank), {}};
  const auto& mesh = tensors.parameters->mesh();
  const auto buffers = unit_buffers(*tensors.graph, mesh, mesh.coordinate(rank), {}, tensors.unit_pp_coordinates);
  const auto dtype = element_name(tensors.dtype);
  std::map<std::string, int> pieces;  // by tensor: names within a file differ
  const auto prefixes = saved_prefixes(tensors);
  const auto trainable = [&](std::size_t b) { return buffers.all[b].trainable; };
  const auto places = flat_places(prefixes.size(), buffers.all.size(), trainable);
  for (std::size_t flat = 0; flat < places.size(); ++flat) {
    const auto [p, b] = places[flat];
    if (!buffers.owner_here[b]) continue;
    for (auto& piece : pieces_to_write(buffers.all[b], mesh, rank)) {
      const auto name = prefixes[p] + piece.tensor;
      const auto before = pieces[name]++;
      const auto stored = before == 0 ? name : fmt::format("{}#{}", name, before);
      const auto shape = piece.range ? Shape{piece.elements()} : piece.lengths;
      file.parts.push_back({flat, std::move(piece), {stored, dtype, shape}, name});
    }
  }
  return file;
}

void add_pieces(Manifest& manifest, const CheckpointedTensors& tensors, const std::vector<RankFile>& files) {
  std::map<std::string, std::size_t> place;
  for (const auto& file : files) {
    for (const auto& part : file.parts) {
      const auto [found, added] = place.emplace(part.tensor, manifest.tensors.size());
      if (added) {
        const auto& shape = tensors.graph->parameter(part.piece.tensor).shape;
        manifest.tensors.push_back({part.tensor, shape, tensors.dtype, {}});
      }
      manifest.tensors[found->second].pieces.push_back(
          {part.piece.offsets, part.piece.lengths, part.piece.range, file.name, part.entry.name});
    }
  }
}

std::optional<BlockTags> CheckpointSeal::tags_of(const std::string& file) const {
  if (!key) return std::nullopt;
  return BlockTags(key, {id, step, file});
}

ManifestFile described_text(const std::string& name, std::string_view text, const CheckpointSeal& seal) {
  const auto bytes = std::as_bytes(std::span(text));
  BlockHashes hashes;
  hashes.update(bytes);
  ManifestFile file{name, static_cast<std::int64_t>(text.size()), hash_texts(hashes.digests()), {}};
  if (auto tags = seal.tags_of(name)) {
    tags->update(bytes);
    file.hmac = tags->digests();
  }
  return file;
}

void write_manifest(const std::filesystem::path& folder, Manifest manifest, const CheckpointSeal& seal) {
  manifest.id = seal.id;
  const auto text = to_json(manifest);
  if (static_cast<std::int64_t>(text.size()) > kMaxManifestBytes) {
    throw DataError(
        fmt::format("{}: would take {}, and such a file has at most {}", (folder / kManifestFile).string(),
                    format_bytes(static_cast<std::int64_t>(text.size())), format_bytes(kMaxManifestBytes)),
        {.remedy = "save on a mesh with fewer fsdp and tp ranks: it has a line for each piece of a tensor"});
  }
  if (seal.key) write_file_atomically(folder / kManifestTagFile, manifest_tag(*seal.key, text) + "\n");
  write_file_atomically(folder / kManifestFile, text);
}

std::int64_t bytes_to_save(const std::vector<RankFile>& files, const std::map<std::string, std::string>& others) {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kHeaderBytes = 160;    // about a tensor in the header of its file, besides its name
  constexpr std::int64_t kManifestBytes = 320;  // about a piece in the manifest, besides names
  constexpr std::int64_t kBlockBytes = 96;      // the hash and the tag of a block in the manifest
  const auto on_pages = [](std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
  std::int64_t total = 2 * kPage;  // the folder, and the tag of its manifest
  std::int64_t manifest = kPage;
  for (const auto& file : files) {
    if (file.parts.empty()) continue;
    std::int64_t bytes = kHeaderBytes;
    for (const auto& part : file.parts) {
      const auto names = static_cast<std::int64_t>(part.entry.name.size() + part.tensor.size() + file.name.size());
      bytes += tensor_bytes(part.entry) + names + kHeaderBytes;
      manifest += names + kManifestBytes;
    }
    total += on_pages(bytes);
    manifest += num_hashed_blocks(bytes) * kBlockBytes;
  }
  for (const auto& [name, text] : others) {
    const auto bytes = static_cast<std::int64_t>(text.size());
    total += on_pages(bytes);
    manifest += static_cast<std::int64_t>(name.size()) + kHeaderBytes + num_hashed_blocks(bytes) * kBlockBytes;
  }
  return total + on_pages(manifest);
}

WrittenFile write_rank_file(const RankFile& file, const std::vector<SavedFlat>& flats,
                            const std::filesystem::path& folder, const CheckpointSeal& seal) {
  auto writer = make_writer(file, folder, seal);
  at::Tensor on_host;
  std::size_t held = flats.size();
  for (const auto& part : file.parts) {
    const auto& saved = flats[part.flat];
    if (part.flat != held) {
      on_host = saved.owned.values().cpu();
      held = part.flat;
    }
    const auto first = first_element(part, saved);
    check_finite(on_host.narrow(0, first, part.piece.elements()), part);
    writer->write(part.entry.name, bytes_of(on_host, first, part.piece.elements()));
  }
  return writer->finish();
}

void RankCopy::begin(const std::vector<SavedFlat>& flats) {
  if (flats.empty() || flats.front().owned.is_cpu()) return;
  const auto device = flats.front().owned.device();
  begun_ = std::make_shared<c10::Event>(device.type());
  begun_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void RankCopy::take(const RankFile& file, const std::vector<SavedFlat>& flats) {
  std::int64_t total = 0;
  for (const auto& part : file.parts) total += tensor_bytes(part.entry);
  if (total == 0) return;
  type_ = flats.front().owned.scalar_type();
  if (!bytes_.defined() || bytes_.numel() != total) {
    const bool pinned = !flats.front().owned.is_cpu();  // a device copies faster there
    bytes_ = at::empty({total}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  }
  c10::OptionalStreamGuard beside;  // the device goes on with the next step meanwhile
  if (begun_) {
    const auto device = flats.front().owned.device();
    const auto stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    begun_->block(stream);
    beside.reset_stream(stream);
  }
  std::int64_t place = 0;
  for (const auto& part : file.parts) {
    const auto& saved = flats[part.flat];
    const auto bytes = tensor_bytes(part.entry);
    const auto first = first_element(part, saved);
    saved.owned.narrow(first, part.piece.elements()).in_pieces([&](std::int64_t begin, const MasterValues& held) {
      const auto values = held.values();
      const auto offset = place + begin * values.element_size();
      if (values.is_cpu()) {
        // Nobody reads the copy before it is written to a file: it has no business in the caches.
        shm::copy_bytes(static_cast<std::byte*>(bytes_.mutable_data_ptr()) + offset,
                        static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes(), /*streaming=*/true);
      } else {
        bytes_.narrow(0, offset, static_cast<std::int64_t>(values.nbytes())).copy_(values.view(at::kByte));
      }
    });
    place += bytes;
  }
}

WrittenFile RankCopy::write(const RankFile& file, const std::filesystem::path& folder,
                            const CheckpointSeal& seal) const {
  auto writer = make_writer(file, folder, seal);
  std::int64_t place = 0;
  for (const auto& part : file.parts) {
    const auto bytes = tensor_bytes(part.entry);
    check_finite(bytes_.narrow(0, place, bytes).view(type_), part);
    writer->write(part.entry.name, bytes_of(bytes_, place, bytes));
    place += bytes;
  }
  return writer->finish();
}

}  // namespace orthant
