#include "orthant/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/checkpoint/rank_file.h"
#include "orthant/checkpoint/saver.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/files/xxhash.h"
#include "orthant/layout/pieces.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Both have the same tensors, of the same shapes and dtypes.
void check_same_tensors(const CheckpointedTensors& tensors, const CheckpointReader& reader) {
  const auto folder = reader.folder().string();
  const char* remedy = "resume with the config.json of that run";
  const auto dtype = tensors.dtype;
  std::set<std::string> known;
  const auto check = [&](const std::string& name, const Shape& shape) {
    const auto* found = reader.find(name);
    known.insert(name);
    if (found == nullptr) {
      throw DataError(fmt::format("{}: holds no tensor {}: it was saved by another model or optimizer", folder, name),
                      {.remedy = remedy});
    }
    if (found->shape == shape && found->dtype == dtype) return;
    throw DataError(
        fmt::format("{}: {} is {} [{}] there and {} [{}] in this model", folder, name, dtype_name(found->dtype),
                    fmt::join(found->shape, ", "), dtype_name(dtype), fmt::join(shape, ", ")),
        {.remedy = remedy});
  };
  for (const auto& prefix : saved_prefixes(tensors)) {
    for (const auto& unit : tensors.graph->units) {
      for (const auto& parameter : unit.parameters) {
        if (prefix.empty() || parameter.trainable) check(prefix + parameter.name, parameter.shape);
      }
    }
  }
  for (const auto& tensor : reader.manifest().tensors) {
    if (known.contains(tensor.name)) continue;
    throw DataError(fmt::format("{}: holds {}, which this model or optimizer does not have", folder, tensor.name),
                    {.remedy = remedy});
  }
}

// What this rank owns of it.
void read_flat(const SavedFlat& saved, const CheckpointReader& reader, const IoPatience& patience) {
  const bool direct = saved.owned.is_cpu() && !saved.owned.is_split();
  const auto on_host =
      direct ? saved.owned.whole() : at::zeros({saved.owned.size()}, at::TensorOptions(saved.owned.scalar_type()));
  const auto size = static_cast<std::size_t>(on_host.element_size());
  auto* data = static_cast<std::byte*>(on_host.mutable_data_ptr());
  const auto owned = saved.parameters->owned();
  for (auto& piece : pieces_of(saved.parameters->layout(), owned)) {
    piece.tensor = saved.prefix + piece.tensor;
    const std::span<std::byte> out(data + static_cast<std::size_t>(piece.local_offset - owned.begin) * size,
                                   static_cast<std::size_t>(piece.elements()) * size);
    patience.retry([&] { reader.read(piece, out); });
  }
  if (!direct) saved.owned.set_values(on_host);
}

// A model that nobody has trained yet: nothing of an optimizer is in it.
bool has_no_history(const Manifest& manifest) {
  return manifest.step == 0 && manifest.updates == 0 && std::ranges::none_of(manifest.tensors, [](const auto& tensor) {
           return tensor.name.starts_with(kOptimizerPrefix);
         });
}

// Gives what is to be told about it.
std::vector<std::string> load_untrained(Checkpointed& training, const CheckpointReader& checkpoint) {
  const auto tensors = training.checkpointed();
  // The files that were proved, not whatever has their names by now. The caller keeps them open.
  const std::shared_ptr<const WeightReader> opened(std::shared_ptr<const WeightReader>(), &checkpoint);
  const PretrainedWeights weights(*tensors.graph, {{.folder = checkpoint.folder(), .opened = opened}}, tensors.ranks);
  weights.load(*tensors.parameters, tensors.ranks);
  for (const auto& state : tensors.states) {
    for (const auto& values : state.buffers) {
      if (values.defined()) values.zero_();
    }
  }
  training.set_progress({});
  return weights.notes();
}

constexpr const char* kChanged =
    "the file was cut short or changed: copy the checkpoint again, or use another one of the run";

// What rank 0 does not see is not there. What it sees and another rank does not is no damage: that rank's view of a
// shared file system is old.
void check_seen(const fs::path& path, const ControlGroup& ranks) {
  if (!ranks.is_first() && !is_there(path)) throw_io_error(path, "lookup", ENOENT);
}

void check_size(const fs::path& path, const ManifestFile& promised, const ControlGroup& ranks) {
  check_seen(path, ranks);
  const bool there = is_there(path);
  const auto bytes = there ? FileHandle::open_regular(path).size() : 0;
  if (there && bytes == promised.bytes) return;
  if (!ranks.is_first()) {
    throw IoError(fmt::format("{}: {} bytes on this rank, {} on rank 0", path.string(), bytes, promised.bytes), ESTALE);
  }
  const auto found = there ? fmt::format("{} bytes", bytes) : std::generic_category().message(ENOENT);
  throw DataError(fmt::format("{}: {}, the manifest promises {} bytes", path.string(), found, promised.bytes),
                  {.remedy = kChanged});
}

// Its hash, and where there is a key its tag: what is damaged is no forgery.
void check_block(const fs::path& folder, const Manifest& manifest, const ManifestFile& promised, std::size_t block,
                 const CheckpointAccess& access) {
  const auto path = folder / promised.name;
  const auto number = static_cast<std::int64_t>(block);
  std::optional<BlockTags> tags;
  if (access.key) tags.emplace(access.key, TaggedFile{manifest.id, manifest.step, promised.name}, number);
  const auto take = [&](std::span<const std::byte> bytes) {
    if (tags) tags->update(bytes);
  };
  const auto hash = hash_text(xxh64_of_block(path, number, promised.bytes, take));
  const auto place = fmt::format("the {} MiB from byte {} on", kHashedBlockBytes >> 20, number * kHashedBlockBytes);
  if (hash != promised.xxh64[block]) {
    throw DataError(
        fmt::format("{}: hash {}, the manifest promises {} for {}", path.string(), hash, promised.xxh64[block], place),
        {.remedy = kChanged});
  }
  if (!tags || equal_tags(tags->digests().front(), promised.hmac[block])) return;
  throw AuthenticityError(fmt::format("{}: the tag of {} is not of this key ({}) and this file", path.string(), place,
                                      access.key->path().string()),
                          {.remedy = "use a checkpoint that was written with this key"});
}

// This rank's share of the checkpoint's blocks, all of them together. Rank 0 looks that every file is there in its
// size.
void check_contents(const fs::path& folder, const Manifest& manifest, const ControlGroup& ranks,
                    const CheckpointAccess& access) {
  std::int64_t blocks = 0;
  for (const auto& file : manifest.files) blocks += static_cast<std::int64_t>(file.xxh64.size());
  const auto own = balanced_range(blocks, ranks.size(), ranks.rank());
  std::int64_t first = 0;
  for (const auto& file : manifest.files) {
    const auto path = folder / file.name;
    const auto met = common(own, {first, first + static_cast<std::int64_t>(file.xxh64.size())});
    if (!met.empty() || ranks.is_first()) access.patience.retry([&] { check_size(path, file, ranks); });
    for (auto block = met.begin; block < met.end; ++block) {
      access.patience.retry(
          [&] { check_block(folder, manifest, file, static_cast<std::size_t>(block - first), access); });
    }
    first += static_cast<std::int64_t>(file.xxh64.size());
  }
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

void save_checkpoint(const Checkpointed& training, const DataCursor& cursor, const std::string& folder,
                     const SavedFiles& others) {
  CheckpointSaver saver(training);
  saver.begin(folder, {cursor, others});
  if (const auto outcome = saver.finish(); outcome->failed) std::rethrow_exception(outcome->failed);
}

CheckpointReader open_checkpoint(const std::string& folder, const ControlGroup& ranks, const CheckpointAccess& access) {
  std::error_code ignored;
  const auto named = ranks.from_first(fs::absolute(folder, ignored).string());
  const fs::path path = ranks.is_first() ? folder : named;
  std::optional<CheckpointReader> reader;
  ranks.together([&] {
    const auto manifest = access.patience.retry([&] {
      check_seen(path / kManifestFile, ranks);
      return read_manifest(path, access.key.get());
    });
    check_contents(path, manifest, ranks, access);
    access.patience.retry([&] { reader.emplace(path, manifest); });
  });
  return std::move(*reader);
}

std::optional<CheckpointReader> open_first_whole(const std::vector<std::string>& candidates, const ControlGroup& ranks,
                                                 const CheckpointAccess& access, const DamagedCheckpoint& damaged) {
  for (std::size_t i = 0;; ++i) {
    const auto path = ranks.from_first(i < candidates.size() ? candidates[i] : "");
    if (path.empty()) return std::nullopt;
    try {
      return open_checkpoint(path, ranks, access);
    } catch (const IoError&) {
      throw;
    } catch (const AuthenticityError&) {
      throw;
    } catch (const VersionError&) {
      throw;
    } catch (const DataError& error) {
      damaged(path, error);
    }
  }
}

Manifest verify_checkpoint(const std::string& folder, const CheckpointAccess& access) {
  return open_checkpoint(folder, {}, access).manifest();
}

LoadedCheckpoint load_checkpoint(Checkpointed& training, const CheckpointReader& checkpoint,
                                 const IoPatience& patience) {
  training.await_readers();
  const auto& manifest = checkpoint.manifest();
  if (has_no_history(manifest)) return {manifest, load_untrained(training, checkpoint)};
  const auto tensors = training.checkpointed();
  const auto flats = saved_flats(tensors);
  tensors.ranks.together([&] { check_same_tensors(tensors, checkpoint); });
  at::NoGradGuard no_gradients;
  tensors.parameters->settle_values();
  tensors.ranks.together([&] {
    for (const auto& saved : flats) read_flat(saved, checkpoint, patience);
  });
  tensors.parameters->publish();
  training.set_progress({manifest.step, manifest.updates, manifest.loss_scale, manifest.good_steps});
  return {manifest, {}};
}

LoadedCheckpoint load_checkpoint(Checkpointed& training, const std::string& folder) {
  return load_checkpoint(training, open_checkpoint(folder, training.checkpointed().ranks));
}

DataCursor cursor_after(const Sampler& sampler, std::int64_t steps) {
  const auto in_epoch = steps % sampler.steps_per_epoch();
  DataCursor cursor;
  cursor.epoch = steps / sampler.steps_per_epoch();
  cursor.position = in_epoch * sampler.global_batch();
  cursor.samples_seen = cursor.epoch * sampler.size() + cursor.position;
  return cursor;
}

}  // namespace orthant
