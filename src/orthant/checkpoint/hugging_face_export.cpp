#include "orthant/checkpoint/hugging_face_export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/classifier_folder.h"
#include "orthant/checkpoint/exported_part.h"
#include "orthant/checkpoint/original_files.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/data/preprocessing.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlockBytes = std::int64_t{64} << 20;  // of a tensor, read and written at once

// A stored tensor under its name in the folder.
struct Item {
  const TensorEntry* stored;
  HuggingFaceName name;
};

// What the folder that the model began with says; all of it empty for other models, and for towers.
struct Original {
  SavedFiles files;         // besides config.json
  std::string config = {};  // the text of config.json
  std::string source = {};  // what errors call it
  bool imported = false;    // config.json says the dtype that is stored
};

Original find_original(const fs::path& checkpoint, const Manifest& manifest, const ExportOptions& options) {
  if (!options.tower.empty()) return {};
  Original original{original_files(checkpoint)};
  if (auto config = original.files.extract(kOriginalConfigFile)) {
    const bool of_run =
        std::ranges::find(manifest.files, kOriginalConfigFile, &ManifestFile::name) != manifest.files.end();
    original.config = std::move(config.mapped());
    original.source = (checkpoint / (of_run ? kOriginalConfigFile : "config.json")).string();
    original.imported = !of_run;
  }
  if (!options.config_file.empty() && !is_run_config(read_config_json(options.config_file))) {
    original.config = read_file(options.config_file);
    original.source = options.config_file.string();
    original.imported = false;
  }
  return original;
}

// Tied heads are not stored, so they are not written: the library ties them again. A folder without a head stays one
// while the head is tied.
HuggingFaceHead head_of(const ModelConfig& config, const std::vector<TensorEntry>& entries, const std::string& prefix,
                        const Original& original) {
  const auto stored = [&](std::string_view name) {
    return std::ranges::any_of(entries, [&](const auto& entry) { return entry.name == prefix + std::string(name); });
  };
  const bool tied = facts_of(config).tied_head;
  if (tied && !original.config.empty() &&
      hugging_face_head(original.config, original.source) == HuggingFaceHead::none) {
    return HuggingFaceHead::none;
  }
  const bool head = tied || stored("head.weight") || stored("head.lm_head.weight") || stored("head.dense.weight");
  return head ? HuggingFaceHead::language_model : HuggingFaceHead::none;
}

std::vector<Item> find_items(const WeightReader& reader, const ExportedPart& part, bool bare,
                             std::vector<std::string>& notes) {
  std::vector<Item> items;
  std::vector<std::string> left;
  for (const auto& entry : reader.entries()) {
    if (auto name = part.name(entry.name, bare)) {
      items.push_back({&entry, std::move(*name)});
    } else {
      left.push_back(entry.name);
    }
  }
  if (!left.empty()) {
    notes.push_back(fmt::format("{} of {} parameters have no place in this folder: {}{}", left.size(),
                                reader.entries().size(), left.front(), left.size() > 1 ? ", ..." : ""));
  }
  return items;
}

std::string config_text(const ModelConfig& config, const Original& original, HuggingFaceHead head, DType written,
                        const ExportOptions& options) {
  if (original.config.empty()) return hugging_face_config_text(config, head, written);
  const bool same_dtype = original.imported && !options.dtype;
  return rewritten_hugging_face_config(original.config, original.source, config,
                                       {head, same_dtype ? std::nullopt : std::optional(written)});
}

// With a key nothing else is taken from the folder than what its tags cover.
void check_tagged(const fs::path& checkpoint, const Manifest& manifest) {
  for (const auto& name : names_in_folder(checkpoint)) {
    if (name == kManifestFile || name == kManifestTagFile) continue;
    if (std::ranges::find(manifest.files, name, &ManifestFile::name) != manifest.files.end()) continue;
    throw AuthenticityError(fmt::format("{}: is not in the manifest, so it has no tag", (checkpoint / name).string()),
                            {.remedy = "remove it, or import the model again with the key"});
  }
}

// Everything that the ranks know alike before they write.
struct ExportPlan {
  Manifest manifest;
  StoredModel model;
  std::optional<ExportedPart> part;
  std::unique_ptr<WeightReader> reader;
  Original original;
  HuggingFaceHead head = HuggingFaceHead::none;
  std::vector<Item> items;
  std::vector<TensorEntry> entries;  // as they are written; beside `items`
};

void plan_tensors(ExportPlan& plan, const fs::path& checkpoint, const ExportOptions& options, ExportResult& result) {
  const auto& part = *plan.part;
  part.check_complete(*plan.reader, checkpoint);
  plan.original = find_original(checkpoint, plan.manifest, options);
  plan.head = head_of(part.config(), plan.reader->entries(), part.prefix(), plan.original);
  plan.items = find_items(*plan.reader, part, plan.head == HuggingFaceHead::none, result.notes);
  for (const auto& item : plan.items) {
    auto shape = item.stored->shape;
    if (item.name.transposed) std::ranges::reverse(shape);
    plan.entries.push_back(
        {item.name.tensor, options.dtype ? element_name(*options.dtype) : item.stored->dtype, shape});
    result.bytes += tensor_bytes(plan.entries.back());
  }
  result.tensors = static_cast<std::int64_t>(plan.entries.size());
}

// Collective over `ranks`.
ExportPlan make_plan(const fs::path& checkpoint, const ExportOptions& options, const ControlGroup& ranks,
                     ExportResult& result) {
  ExportPlan plan;
  ranks.together([&] {
    plan.manifest = read_manifest(checkpoint, options.key.get());  // refuses what is no checkpoint
    if (options.key) check_tagged(checkpoint, plan.manifest);
    plan.model = find_stored_model(checkpoint, options.config_file);
    plan.part.emplace(plan.model.config, options.tower);
  });
  plan.reader = open_weights(checkpoint, ranks, options.key);
  ranks.together([&] {
    auto note = unchecked_tags_note(checkpoint, plan.manifest, {IoPatience(), options.key});
    if (!note.empty()) result.notes.push_back(std::move(note));
    plan_tensors(plan, checkpoint, options, result);
  });
  return plan;
}

// Reads tensors by blocks of rows, into memory that all of them share: fresh memory for each would pile up in the heap.
class BlockReader {
 public:
  // Blocks have at most `most` bytes, or one row.
  BlockReader(const WeightReader& reader, std::int64_t most) : reader_(reader), most_(most) {}

  void put(const Item& item, const TensorEntry& entry, const PutBytes& put) {
    TensorBox box{entry.shape, Shape(entry.shape.size(), 0), entry.shape};
    const bool scalar = entry.shape.empty();
    const auto rows = scalar ? 1 : entry.shape[0];
    const auto row_bytes = tensor_bytes(entry) / rows;
    const auto step = std::clamp<std::int64_t>(most_ / row_bytes, 1, rows);
    for (std::int64_t first = 0; first < rows; first += step) {
      const auto count = std::min(step, rows - first);
      if (!scalar) {
        box.offsets[0] = first;
        box.lengths[0] = count;
      }
      const auto values = memory(count * row_bytes).view(scalar_type(stored_dtype(entry))).view(box.lengths);
      read_into(reader_, *item.stored, item.name.transposed, box, values);
      put({static_cast<const std::byte*>(values.const_data_ptr()), static_cast<std::size_t>(values.nbytes())});
    }
  }

 private:
  at::Tensor memory(std::int64_t bytes) {
    if (!block_.defined() || block_.numel() < bytes) {
      block_ = at::Tensor();
      block_ = at::empty({bytes}, at::kByte);
    }
    return block_.narrow(0, 0, bytes);
  }

  const WeightReader& reader_;
  std::int64_t most_;
  at::Tensor block_;
};

// The shards that are this rank's; gives the bytes of their tensors. Local.
std::int64_t write_own_shards(const ExportPlan& plan, const fs::path& folder, const ExportOptions& options,
                              const ControlGroup& ranks, ExportResult& result) {
  std::map<std::string_view, const Item*> by_name;
  for (const auto& item : plan.items) by_name.emplace(item.name.tensor, &item);
  BlockReader reader(*plan.reader, std::min(kBlockBytes, options.max_shard_bytes));
  std::int64_t written = 0;
  const TensorSource source = [&](const TensorEntry& entry, const PutBytes& put) {
    reader.put(*by_name.at(entry.name), entry, put);
    written += tensor_bytes(entry);
  };
  TensorFolderOptions shards;
  shards.max_shard_bytes = options.max_shard_bytes;
  shards.writer = ranks.rank();
  shards.writers = ranks.size();
  result.files = write_tensor_files(folder, plan.entries, source, shards);
  return written;
}

void copy_tokenizer(const fs::path& from, const fs::path& folder, const std::string& place, ExportResult& result) {
  if (!is_there(from)) return;
  if (!place.empty()) fs::create_directories(folder / place);
  for (const auto& name : copy_tokenizer_files(from, folder / place)) {
    result.files.push_back((fs::path(place) / name).string());
  }
}

// What a classifier needs besides its weights: see classifier_folder.h.
void write_classifier_files(const ExportPlan& plan, const fs::path& folder, const fs::path& checkpoint,
                            const ExportOptions& options, DType written, ExportResult& result) {
  const auto file = options.config_file.empty() ? plan.model.companions / "config.json" : options.config_file;
  write_file_atomically(
      folder / "config.json",
      classifier_config_text(read_config_json(file), plan.part->config().family(), file.string(), written));
  result.files.emplace_back("config.json");
  const auto& kept = plan.manifest.files;
  if (std::ranges::find(kept, kPreprocessingFile, &ManifestFile::name) != kept.end()) {
    write_file_atomically(folder / kPreprocessingFile, read_file(checkpoint / kPreprocessingFile));
    result.files.emplace_back(kPreprocessingFile);
  } else {
    result.notes.push_back(fmt::format(
        "the checkpoint has no {}: the run was on generated data, and predict cannot prepare rows for this model",
        kPreprocessingFile));
  }
  for (const char* tower : {"primary", "secondary"}) {
    copy_tokenizer(tokenizer_folder(plan.model.companions, tower), folder, tokenizer_folder("", tower).string(),
                   result);
  }
}

// Everything but weights. Local, on one rank.
void write_other_files(const ExportPlan& plan, const fs::path& folder, const fs::path& checkpoint,
                       const ExportOptions& options, ExportResult& result) {
  const auto written = options.dtype ? *options.dtype : stored_dtype(plan.entries.front());
  if (plan.part->is_classifier()) {
    write_classifier_files(plan, folder, checkpoint, options, written, result);
    return;
  }
  write_file_atomically(folder / "config.json",
                        config_text(plan.part->config(), plan.original, plan.head, written, options));
  result.files.emplace_back("config.json");
  for (const auto& [name, text] : plan.original.files) {
    write_file_atomically(folder / name, text);
    result.files.push_back(name);
  }
  copy_tokenizer(tokenizer_folder(plan.model.companions, options.tower), folder, "", result);
}

}  // namespace

ExportResult export_hugging_face(const fs::path& checkpoint, const fs::path& out, const ExportOptions& options,
                                 const ControlGroup& ranks) {
  const PhaseScope saving(ranks, JobPhase::save);
  ExportResult result;
  const auto plan = make_plan(checkpoint, options, ranks, result);
  std::optional<AtomicFolder> folder;
  ranks.together([&] {
    if (!ranks.is_first()) return;
    remove_left_partials(out);
    folder.emplace(out);
  });
  const fs::path partial = ranks.from_first(folder ? folder->path().string() : "");
  std::int64_t written = 0;
  ranks.together([&] { written = write_own_shards(plan, partial, options, ranks, result); });
  for (const auto& bytes : ranks.gather(at::tensor({written}, at::kLong))) {
    result.bytes_per_rank.push_back(bytes.item<std::int64_t>());
  }
  ranks.together([&] {
    if (!folder) return;
    write_other_files(plan, partial, checkpoint, options, result);
    folder->commit();
  });
  return result;
}

}  // namespace orthant
