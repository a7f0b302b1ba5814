#include "orthant/train/checkpoint_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <span>

#include "orthant/nn/scalar_type.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/checkpoint_reader.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

// The buffers of all units as `rank` has them.
std::vector<FlatBuffer> layouts_of(const Trainer& trainer, int rank) {
  std::vector<FlatBuffer> layouts;
  const auto coordinate = trainer.mesh().coordinate(rank);
  for (int u = 0; u < static_cast<int>(trainer.graph().units.size()); ++u) {
    for (auto& layout : flat_buffers(trainer.graph(), u, trainer.mesh(), coordinate)) {
      layouts.push_back(std::move(layout));
    }
  }
  return layouts;
}

std::span<const std::byte> bytes_of(const at::Tensor& owned, std::int64_t offset, std::int64_t elements) {
  const auto size = static_cast<std::size_t>(owned.element_size());
  const auto* data = static_cast<const std::byte*>(owned.const_data_ptr());
  return {data + static_cast<std::size_t>(offset) * size, static_cast<std::size_t>(elements) * size};
}

}  // namespace

std::vector<SavedFlat> saved_flats(const Trainer& trainer) {
  std::vector<SavedFlat> saved;
  const auto& buffers = trainer.parameters().buffers();
  for (std::size_t b = 0; b < buffers.size(); ++b) saved.push_back({b, buffers[b].get(), buffers[b]->master(), ""});
  const auto& optimizer = trainer.optimizer();
  for (std::size_t s = 0; s < optimizer.state_names().size(); ++s) {
    const auto prefix = fmt::format("{}{}.", kOptimizerPrefix, optimizer.state_names()[s]);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (buffers[b]->trainable()) saved.push_back({b, buffers[b].get(), optimizer.state(s, b), prefix});
    }
  }
  return saved;
}

RankFile plan_file(const Trainer& trainer, const std::vector<SavedFlat>& flats, int rank) {
  RankFile file{fmt::format("rank-{}.safetensors", rank), {}};
  const auto layouts = layouts_of(trainer, rank);
  std::map<std::string, int> pieces;  // by tensor: names within a file differ
  for (std::size_t f = 0; f < flats.size(); ++f) {
    const auto dtype = element_name(dtype_of(flats[f].owned.scalar_type()));
    for (auto& piece : pieces_to_write(layouts[flats[f].buffer], trainer.mesh(), rank)) {
      const auto name = flats[f].prefix + piece.tensor;
      const auto before = pieces[name]++;
      const auto stored = before == 0 ? name : fmt::format("{}#{}", name, before);
      const auto shape = piece.range ? Shape{piece.elements()} : piece.lengths;
      file.parts.push_back({f, std::move(piece), {stored, dtype, shape}, name});
    }
  }
  return file;
}

void add_pieces(Manifest& manifest, const Trainer& trainer, const std::vector<SavedFlat>& flats,
                const std::vector<RankFile>& files) {
  std::map<std::string, std::size_t> place;
  for (const auto& file : files) {
    for (const auto& part : file.parts) {
      const auto [found, added] = place.emplace(part.tensor, manifest.tensors.size());
      if (added) {
        const auto& shape = trainer.graph().parameter(part.piece.tensor).shape;
        manifest.tensors.push_back({part.tensor, shape, dtype_of(flats[part.flat].owned.scalar_type()), {}});
      }
      manifest.tensors[found->second].pieces.push_back(
          {part.piece.offsets, part.piece.lengths, part.piece.range, file.name, part.entry.name});
    }
  }
}

WrittenFile write_rank_file(const RankFile& file, const std::vector<SavedFlat>& flats,
                            const std::filesystem::path& folder) {
  std::vector<TensorEntry> entries;
  for (const auto& part : file.parts) entries.push_back(part.entry);
  SafetensorsWriter writer(folder / file.name, std::move(entries), {{"format", "orthant"}});
  at::Tensor on_host;
  std::size_t held = flats.size();
  for (const auto& part : file.parts) {
    const auto& saved = flats[part.flat];
    if (part.flat != held) {
      on_host = saved.owned.cpu();
      held = part.flat;
    }
    const auto first = part.piece.local_offset - saved.parameters->owned().begin;
    writer.write(part.entry.name, bytes_of(on_host, first, part.piece.elements()));
  }
  return writer.finish();
}

}  // namespace orthant
