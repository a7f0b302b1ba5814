#include "orthant/train/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "orthant/base/error.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/files/partial.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/whole_file.h"
#include "orthant/layout/pieces.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/checkpoint_reader.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// One flat tensor that a checkpoint holds, and how its parameters are called there.
struct SavedFlat {
  const FlatBuffer* layout;
  at::Tensor flat;
  std::string prefix;  // "" or "optimizer.exp_avg."
};

std::vector<SavedFlat> saved_flats(const Trainer& trainer) {
  std::vector<SavedFlat> saved;
  const auto& buffers = trainer.parameters().buffers();
  for (const auto& buffer : buffers) saved.push_back({&buffer->layout(), buffer->master(), ""});
  const auto& optimizer = trainer.optimizer();
  for (std::size_t s = 0; s < optimizer.state_names().size(); ++s) {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (!buffers[b]->trainable()) continue;
      saved.push_back({&buffers[b]->layout(), optimizer.state(s, b),
                       fmt::format("{}{}.", kOptimizerPrefix, optimizer.state_names()[s])});
    }
  }
  return saved;
}

std::span<const std::byte> bytes_of(const at::Tensor& flat, const Piece& piece) {
  const auto size = static_cast<std::size_t>(flat.element_size());
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  return {data + static_cast<std::size_t>(piece.local_offset) * size,
          static_cast<std::size_t>(piece.elements()) * size};
}

// A rank's file: what it holds, in the order it is written.
struct RankFile {
  struct Part {
    std::size_t flat;
    Piece piece;
    TensorEntry entry;
  };
  std::string name;
  std::vector<Part> parts;
};

RankFile plan_file(const Trainer& trainer, const std::vector<SavedFlat>& flats, int rank, Manifest& manifest) {
  RankFile file{fmt::format("rank-{}.safetensors", rank), {}};
  std::map<std::string, std::size_t> place;
  for (std::size_t f = 0; f < flats.size(); ++f) {
    const auto dtype = dtype_of(flats[f].flat.scalar_type());
    for (auto& piece : pieces_to_write(*flats[f].layout, trainer.mesh(), rank)) {
      const auto name = flats[f].prefix + piece.tensor;
      const auto [found, added] = place.emplace(name, manifest.tensors.size());
      if (added) manifest.tensors.push_back({name, trainer.graph().parameter(piece.tensor).shape, dtype, {}});
      auto& pieces = manifest.tensors[found->second].pieces;
      const auto stored = pieces.empty() ? name : fmt::format("{}#{}", name, pieces.size());
      pieces.push_back({piece.offsets, piece.lengths, piece.range, file.name, stored});
      const auto shape = piece.range ? Shape{piece.elements()} : piece.lengths;
      file.parts.push_back({f, std::move(piece), {stored, element_name(dtype), shape}});
    }
  }
  return file;
}

WrittenFile write_file(const RankFile& file, const std::vector<SavedFlat>& flats, const fs::path& folder) {
  std::vector<TensorEntry> entries;
  for (const auto& part : file.parts) entries.push_back(part.entry);
  SafetensorsWriter writer(folder / file.name, std::move(entries), {{"format", "orthant"}});
  at::Tensor on_host;
  std::size_t held = flats.size();
  for (const auto& part : file.parts) {
    if (part.flat != held) {
      on_host = flats[part.flat].flat.cpu();
      held = part.flat;
    }
    writer.write(part.entry.name, bytes_of(on_host, part.piece));
  }
  return writer.finish();
}

// Both have the same tensors, of the same shapes and dtypes.
void check_same_tensors(const Trainer& trainer, const std::vector<SavedFlat>& flats, const CheckpointReader& reader,
                        const std::string& folder) {
  const char* remedy = "resume with the config.json of that run";
  std::set<std::string> known;
  for (const auto& saved : flats) {
    const auto dtype = dtype_of(saved.flat.scalar_type());
    for (const auto& entry : saved.layout->entries) {
      const auto name = saved.prefix + entry.parameter;
      const auto& shape = trainer.graph().parameter(entry.parameter).shape;
      const auto* found = reader.find(name);
      known.insert(name);
      if (found == nullptr) {
        throw DataError(fmt::format("{}: holds no tensor {}: it was saved by another model or optimizer", folder, name),
                        {.remedy = remedy});
      }
      if (found->shape == shape && found->dtype == dtype) continue;
      throw DataError(
          fmt::format("{}: {} is {} [{}] there and {} [{}] in this model", folder, name, dtype_name(found->dtype),
                      fmt::join(found->shape, ", "), dtype_name(dtype), fmt::join(shape, ", ")),
          {.remedy = remedy});
    }
  }
  for (const auto& tensor : reader.manifest().tensors) {
    if (known.contains(tensor.name)) continue;
    throw DataError(fmt::format("{}: holds {}, which this model or optimizer does not have", folder, tensor.name),
                    {.remedy = remedy});
  }
}

void read_flat(const SavedFlat& saved, const CheckpointReader& reader) {
  const bool direct = saved.flat.is_cpu();
  const auto on_host = direct ? saved.flat : at::zeros(saved.flat.sizes(), saved.flat.options().device(at::kCPU));
  const auto size = static_cast<std::size_t>(on_host.element_size());
  auto* data = static_cast<std::byte*>(on_host.mutable_data_ptr());
  for (auto& piece : pieces_of(*saved.layout, {0, saved.layout->size})) {
    piece.tensor = saved.prefix + piece.tensor;
    reader.read(piece, {data + static_cast<std::size_t>(piece.local_offset) * size,
                        static_cast<std::size_t>(piece.elements()) * size});
  }
  if (!direct) saved.flat.copy_(on_host);
}

// A model that nobody has trained yet: nothing of an optimizer is in it.
bool has_no_history(const Manifest& manifest) {
  return manifest.step == 0 && manifest.updates == 0 && std::ranges::none_of(manifest.tensors, [](const auto& tensor) {
           return tensor.name.starts_with(kOptimizerPrefix);
         });
}

// Gives what is to be told about it.
std::vector<std::string> load_untrained(Trainer& trainer, const std::string& folder) {
  const PretrainedWeights weights(trainer.graph(), {{folder}});
  weights.load(trainer.parameters());
  const auto& optimizer = trainer.optimizer();
  for (std::size_t s = 0; s < optimizer.state_names().size(); ++s) {
    for (std::size_t b = 0; b < trainer.parameters().buffers().size(); ++b) {
      if (trainer.parameters().buffers()[b]->trainable()) optimizer.state(s, b).zero_();
    }
  }
  trainer.optimizer().set_num_updates(0);
  trainer.set_steps_done(0);
  return weights.notes();
}

// Sizes and hashes of all files, then what the tensor files hold.
CheckpointReader open_verified(const fs::path& folder) {
  auto manifest = read_manifest(folder);
  const char* remedy = "the file was cut short or changed: copy the checkpoint again, or use another one of the run";
  for (const auto& file : manifest.files) {
    const auto name = (folder / file.name).string();
    std::error_code error;
    const auto bytes = fs::file_size(folder / file.name, error);
    if (error || static_cast<std::int64_t>(bytes) != file.bytes) {
      throw DataError(fmt::format("{}: {} bytes, the manifest promises {}", name, error ? 0 : bytes, file.bytes),
                      {.remedy = remedy});
    }
    const auto hash = fmt::format("{:016x}", xxh64_of_file(folder / file.name));
    if (hash == file.xxh64) continue;
    throw DataError(fmt::format("{}: hash {}, the manifest promises {}", name, hash, file.xxh64), {.remedy = remedy});
  }
  return {folder, std::move(manifest)};
}

}  // namespace

std::string element_name(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "F64";
    case DType::float32:
      return "F32";
    case DType::bfloat16:
      return "BF16";
    case DType::float16:
      return "F16";
    case DType::int64:
      return "I64";
    case DType::int32:
      return "I32";
    case DType::uint8:
      return "U8";
    case DType::boolean:
      return "BOOL";
  }
  throw InternalError("a dtype without a name");
}

void save_checkpoint(const Trainer& trainer, const DataCursor& cursor, const std::string& folder,
                     const SavedFiles& others) {
  const fs::path path(folder);
  std::error_code ignored;
  fs::create_directories(path.parent_path().empty() ? fs::path(".") : path.parent_path(), ignored);
  Manifest manifest;
  manifest.step = trainer.steps_done();
  manifest.mesh = trainer.mesh().to_string();
  manifest.epoch = cursor.epoch;
  manifest.position = cursor.position;
  manifest.samples_seen = cursor.samples_seen;
  manifest.seed = trainer.options().seed;
  manifest.updates = trainer.optimizer().num_updates();
  fs::remove_all(path, ignored);
  AtomicFolder target(path);
  const auto flats = saved_flats(trainer);
  const auto file = plan_file(trainer, flats, /*rank=*/0, manifest);
  const auto written = write_file(file, flats, target.path());
  manifest.files.push_back({file.name, written.bytes, fmt::format("{:016x}", written.xxh64)});
  for (const auto& [name, text] : others) {
    write_file_atomically(target.path() / name, text);
    manifest.files.push_back(
        {name, static_cast<std::int64_t>(text.size()), fmt::format("{:016x}", xxh64_of_file(target.path() / name))});
  }
  write_file_atomically(target.path() / kManifestFile, to_json(manifest));
  target.commit();
}

Manifest verify_checkpoint(const std::string& folder) {
  return open_verified(folder).manifest();
}

LoadedCheckpoint load_checkpoint(Trainer& trainer, const std::string& folder) {
  const auto reader = open_verified(folder);
  const auto& manifest = reader.manifest();
  if (has_no_history(manifest)) return {manifest, load_untrained(trainer, folder)};
  const auto flats = saved_flats(trainer);
  check_same_tensors(trainer, flats, reader, folder);
  at::NoGradGuard no_gradients;
  for (const auto& saved : flats) read_flat(saved, reader);
  trainer.parameters().publish();
  trainer.optimizer().set_num_updates(manifest.updates);
  trainer.set_steps_done(manifest.step);
  return {manifest, {}};
}

std::vector<FoundCheckpoint> list_checkpoints(const std::string& parent) {
  std::vector<FoundCheckpoint> found;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(parent, error)) {
    const auto name = item.path().filename().string();
    if (!name.starts_with("step-") || !item.is_directory()) continue;
    std::int64_t step = -1;
    const auto* end = name.data() + name.size();
    if (std::from_chars(name.data() + 5, end, step).ptr == end && step >= 0)
      found.push_back({step, item.path().string()});
  }
  std::ranges::sort(found, std::greater<>(), &FoundCheckpoint::step);
  return found;
}

std::optional<FoundCheckpoint> newest_valid_checkpoint(const std::string& parent, std::vector<std::string>& refused) {
  for (const auto& checkpoint : list_checkpoints(parent)) {
    try {
      verify_checkpoint(checkpoint.path);
      return checkpoint;
    } catch (const DataError& error) {
      refused.push_back(error.message());
    }
  }
  return std::nullopt;
}

DataCursor cursor_after(const Sampler& sampler, std::int64_t steps) {
  const auto in_epoch = steps % sampler.steps_per_epoch();
  DataCursor cursor;
  cursor.epoch = steps / sampler.steps_per_epoch();
  cursor.position = in_epoch * sampler.global_batch();
  cursor.samples_seen = cursor.epoch * sampler.size() + cursor.position;
  return cursor;
}

std::vector<std::int64_t> drop_checkpoints_after(const std::string& parent, std::int64_t step) {
  std::vector<std::int64_t> dropped;
  std::error_code ignored;
  for (const auto& checkpoint : list_checkpoints(parent)) {
    if (checkpoint.step <= step) continue;
    fs::remove_all(checkpoint.path, ignored);
    dropped.push_back(checkpoint.step);
  }
  return dropped;
}

void prune_checkpoints(const std::string& parent, std::int64_t keep) {
  const auto found = list_checkpoints(parent);
  std::error_code ignored;
  for (std::size_t i = static_cast<std::size_t>(keep); i < found.size(); ++i) fs::remove_all(found[i].path, ignored);
  for (const auto& partial : stale_partials(parent)) fs::remove_all(partial, ignored);
}

}  // namespace orthant
