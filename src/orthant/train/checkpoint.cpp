#include "orthant/train/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "orthant/base/error.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/files/partial.h"
#include "orthant/files/whole_file.h"
#include "orthant/layout/pieces.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/train/checkpoint_files.h"
#include "orthant/train/control_group.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNewCheckpoint = ".new";  // after the name of the one that it will replace

// Both have the same tensors, of the same shapes and dtypes.
void check_same_tensors(const Trainer& trainer, const CheckpointReader& reader) {
  const auto folder = reader.folder().string();
  const char* remedy = "resume with the config.json of that run";
  const auto dtype = trainer.options().precision.params;
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
  for (const auto& prefix : saved_prefixes(trainer)) {
    for (const auto& unit : trainer.graph().units) {
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
void read_flat(const SavedFlat& saved, const CheckpointReader& reader) {
  const bool direct = saved.owned.is_cpu();
  const auto on_host = direct ? saved.owned : at::zeros(saved.owned.sizes(), saved.owned.options().device(at::kCPU));
  const auto size = static_cast<std::size_t>(on_host.element_size());
  auto* data = static_cast<std::byte*>(on_host.mutable_data_ptr());
  const auto owned = saved.parameters->owned();
  for (auto& piece : pieces_of(saved.parameters->layout(), owned)) {
    piece.tensor = saved.prefix + piece.tensor;
    reader.read(piece, {data + static_cast<std::size_t>(piece.local_offset - owned.begin) * size,
                        static_cast<std::size_t>(piece.elements()) * size});
  }
  if (!direct) saved.owned.copy_(on_host);
}

// A model that nobody has trained yet: nothing of an optimizer is in it.
bool has_no_history(const Manifest& manifest) {
  return manifest.step == 0 && manifest.updates == 0 && std::ranges::none_of(manifest.tensors, [](const auto& tensor) {
           return tensor.name.starts_with(kOptimizerPrefix);
         });
}

// Gives what is to be told about it.
std::vector<std::string> load_untrained(Trainer& trainer, const std::filesystem::path& folder) {
  const ControlGroup ranks(trainer.options());
  const PretrainedWeights weights(trainer.graph(), {{folder}}, ranks);
  weights.load(trainer.parameters(), ranks);
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

void check_file(const fs::path& path, const ManifestFile& promised) {
  const char* remedy = "the file was cut short or changed: copy the checkpoint again, or use another one of the run";
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || static_cast<std::int64_t>(bytes) != promised.bytes) {
    throw DataError(
        fmt::format("{}: {} bytes, the manifest promises {}", path.string(), error ? 0 : bytes, promised.bytes),
        {.remedy = remedy});
  }
  const auto hash = fmt::format("{:016x}", xxh64_of_file(path));
  if (hash == promised.xxh64) return;
  throw DataError(fmt::format("{}: hash {}, the manifest promises {}", path.string(), hash, promised.xxh64),
                  {.remedy = remedy});
}

// A folder that takes the place of another when it is complete. Rank 0's.
class NewCheckpoint {
 public:
  explicit NewCheckpoint(const fs::path& path)
      : path_(final_path_of(path)), beside_(path_.string() + kNewCheckpoint), folder_(made_place()) {}

  const fs::path& path() const { return folder_.path(); }

  void commit() {
    folder_.commit();
    if (folder_.final_path() == path_) return;
    std::error_code error;
    if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(beside_, error);
    } else {  // the file system or kernel knows only the plain call
      fs::remove_all(path_, error);
      fs::rename(beside_, path_, error);
      if (error) throw DataError(fmt::format("{}: rename to {}: {}", beside_, path_.string(), error.message()));
    }
    fsync_path(path_.parent_path());
  }

 private:
  fs::path made_place() const {
    std::error_code ignored;
    fs::create_directories(path_.parent_path(), ignored);
    fs::remove_all(beside_, ignored);
    return fs::exists(fs::symlink_status(path_, ignored)) ? fs::path(beside_) : path_;
  }

  fs::path path_;
  std::string beside_;
  AtomicFolder folder_;
};

// Sizes and hashes, as [bytes, hash] of every rank; nothing where a rank has no file.
using WrittenFiles = std::vector<at::Tensor>;

Manifest make_manifest(const Trainer& trainer, const DataCursor& cursor, const WrittenFiles& written) {
  Manifest manifest;
  manifest.step = trainer.steps_done();
  manifest.mesh = trainer.mesh().to_string();
  manifest.epoch = cursor.epoch;
  manifest.position = cursor.position;
  manifest.samples_seen = cursor.samples_seen;
  manifest.seed = trainer.options().seed;
  manifest.updates = trainer.optimizer().num_updates();
  if (trainer.loss_scale().dynamic()) {
    const auto scale = trainer.loss_scale().state();
    manifest.loss_scale = scale.value;
    manifest.good_steps = scale.good_steps;
  }
  std::vector<RankFile> files;
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    files.push_back(plan_file(trainer, static_cast<int>(rank)));
    if (written[rank].numel() == 0) continue;
    const auto* facts = written[rank].const_data_ptr<std::int64_t>();
    manifest.files.push_back(
        {files.back().name, facts[0], fmt::format("{:016x}", static_cast<std::uint64_t>(facts[1]))});
  }
  add_pieces(manifest, trainer, files);
  return manifest;
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
  const ControlGroup ranks(trainer.options());
  std::optional<NewCheckpoint> target;
  ranks.together([&] {
    if (ranks.is_first()) target.emplace(folder);
  });
  const fs::path place = ranks.from_first(target ? target->path().string() : "");
  const auto flats = saved_flats(trainer);
  at::Tensor written = at::empty({0}, at::kLong);
  ranks.together([&] {
    const auto file = plan_file(trainer, ranks.rank());
    if (file.parts.empty()) return;
    const auto facts = write_rank_file(file, flats, place);
    written = at::tensor({facts.bytes, static_cast<std::int64_t>(facts.xxh64)}, at::kLong);
  });
  const auto all = ranks.gather(written);
  ranks.together([&] {
    if (!target) return;
    auto manifest = make_manifest(trainer, cursor, all);
    for (const auto& [name, text] : others) {
      write_file_atomically(place / name, text);
      manifest.files.push_back(
          {name, static_cast<std::int64_t>(text.size()), fmt::format("{:016x}", xxh64_of_file(place / name))});
    }
    write_file_atomically(place / kManifestFile, to_json(manifest));
    target->commit();
  });
}

CheckpointReader open_checkpoint(const std::string& folder, const ControlGroup& ranks) {
  std::error_code ignored;
  const auto named = ranks.from_first(fs::absolute(folder, ignored).string());
  const fs::path path = ranks.is_first() ? folder : named;
  std::optional<CheckpointReader> reader;
  ranks.together([&] {
    auto manifest = read_manifest(path);
    const auto share = static_cast<std::size_t>(ranks.size());
    for (auto i = static_cast<std::size_t>(ranks.rank()); i < manifest.files.size(); i += share) {
      check_file(path / manifest.files[i].name, manifest.files[i]);
    }
    reader.emplace(path, std::move(manifest));
  });
  return std::move(*reader);
}

Manifest verify_checkpoint(const std::string& folder) {
  return open_checkpoint(folder, {}).manifest();
}

LoadedCheckpoint load_checkpoint(Trainer& trainer, const CheckpointReader& checkpoint) {
  const ControlGroup ranks(trainer.options());
  const auto& manifest = checkpoint.manifest();
  if (has_no_history(manifest)) return {manifest, load_untrained(trainer, checkpoint.folder())};
  const auto flats = saved_flats(trainer);
  ranks.together([&] { check_same_tensors(trainer, checkpoint); });
  at::NoGradGuard no_gradients;
  trainer.parameters().settle_values();
  ranks.together([&] {
    for (const auto& saved : flats) read_flat(saved, checkpoint);
  });
  trainer.parameters().publish();
  trainer.optimizer().set_num_updates(manifest.updates);
  if (manifest.loss_scale > 0) trainer.loss_scale().set_state({manifest.loss_scale, manifest.good_steps});
  trainer.set_steps_done(manifest.step);
  return {manifest, {}};
}

LoadedCheckpoint load_checkpoint(Trainer& trainer, const std::string& folder) {
  return load_checkpoint(trainer, open_checkpoint(folder, ControlGroup(trainer.options())));
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
  for (const auto& checkpoint : found) fs::remove_all(checkpoint.path + kNewCheckpoint, ignored);
}

}  // namespace orthant
