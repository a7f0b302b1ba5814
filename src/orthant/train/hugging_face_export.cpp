#include "orthant/train/hugging_face_export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/files/whole_file.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/specs/hugging_face.h"
#include "orthant/specs/hugging_face_names.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/checkpoint_reader.h"
#include "orthant/train/original_files.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/stored_model.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

const std::array<std::string, 2> kTowers = {"primary", "secondary"};

// The part of a stored model that becomes the folder, and what its parameters begin with.
struct Exported {
  ModelConfig config;
  std::string prefix;
};

Exported exported_part(const ModelConfig& config, const std::string& tower) {
  const auto* trimodal = std::get_if<TrimodalConfig>(&config);
  if (tower.empty()) return {config, ""};
  if (std::ranges::find(kTowers, tower) == kTowers.end()) {
    throw ConfigError(fmt::format("unknown tower \"{}\"", tower), {.remedy = did_you_mean(tower, kTowers)});
  }
  if (trimodal == nullptr) {
    throw ConfigError(fmt::format("--tower {}: a model of kind {} has no towers", tower, model_kind(config)),
                      {.remedy = "leave --tower out"});
  }
  BertModelConfig bert;
  const bool primary = tower == kTowers[0];
  bert.encoder = primary ? trimodal->primary : trimodal->secondary;
  return {bert, primary || trimodal->shared_towers ? "primary." : "secondary."};
}

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
  if (!options.config_file.empty() && !is_run_config(options.config_file)) {
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
  const auto* llama = std::get_if<LlamaConfig>(&config);
  const auto* gpt2 = std::get_if<Gpt2Config>(&config);
  const bool tied = (llama != nullptr && llama->tie_word_embeddings) || (gpt2 != nullptr && gpt2->tie_word_embeddings);
  if (tied && !original.config.empty() &&
      hugging_face_head(original.config, original.source) == HuggingFaceHead::none) {
    return HuggingFaceHead::none;
  }
  const bool head = tied || stored("head.weight") || stored("head.lm_head.weight") || stored("head.dense.weight");
  return head ? HuggingFaceHead::language_model : HuggingFaceHead::none;
}

std::vector<Item> find_items(const WeightReader& reader, const Exported& part, bool bare,
                             std::vector<std::string>& notes) {
  std::vector<Item> items;
  std::vector<std::string> left;
  for (const auto& entry : reader.entries()) {
    if (!entry.name.starts_with(part.prefix)) {
      left.push_back(entry.name);
      continue;
    }
    auto name = hugging_face_name(tensor_family(part.config), entry.name.substr(part.prefix.size()), bare);
    if (name) {
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

// Every parameter of the body must be there in its shape: what is written can be read again.
void check_complete(const Exported& part, const WeightReader& reader, const fs::path& checkpoint) {
  const auto spec = std::holds_alternative<BertModelConfig>(part.config)
                        ? forward_spec(part.config, {.rows = 1, .sequence = 1}, {.pooler = false})
                        : build_spec(part.config, {.rows = 1, .sequence = 1});
  std::vector<std::string> differences;
  for (const auto& unit : spec.units) {
    for (const auto& parameter : unit.parameters) {
      const auto name = part.prefix + parameter.name;
      const auto found = std::ranges::find(reader.entries(), name, &TensorEntry::name);
      const auto shape = fmt::format("[{}]", fmt::join(parameter.shape, ", "));
      if (found == reader.entries().end()) {
        const auto place = hugging_face_name(tensor_family(part.config), parameter.name, false);
        if (!place || place->body) differences.push_back(fmt::format("{}: missing, {} expected", name, shape));
      } else if (found->shape != parameter.shape) {
        differences.push_back(
            fmt::format("{}: [{}] there, {} by config.json", name, fmt::join(found->shape, ", "), shape));
      }
    }
  }
  if (differences.empty()) return;
  throw_differences(checkpoint.string(), "config.json", differences, "give the config.json of the run that wrote it");
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

}  // namespace

ExportResult export_hugging_face(const fs::path& checkpoint, const fs::path& out, const ExportOptions& options) {
  const auto manifest = read_manifest(checkpoint, options.key.get());  // refuses what is no checkpoint
  if (options.key) check_tagged(checkpoint, manifest);
  const auto model = find_stored_model(checkpoint, options.config_file);
  const auto part = exported_part(model.config, options.tower);
  const auto asked = options.dtype.value_or(DType::float32);
  hugging_face_config_text(part.config, HuggingFaceHead::none, asked);  // refuses other kinds
  const auto reader = open_weights(checkpoint, {}, options.key);
  check_complete(part, *reader, checkpoint);

  ExportResult result;
  if (auto note = unchecked_tags_note(checkpoint, manifest, {IoPatience(), options.key}); !note.empty()) {
    result.notes.push_back(std::move(note));
  }
  const auto original = find_original(checkpoint, manifest, options);
  const auto head = head_of(part.config, reader->entries(), part.prefix, original);
  const auto items = find_items(*reader, part, head == HuggingFaceHead::none, result.notes);
  std::vector<TensorEntry> entries;
  std::map<std::string, const Item*> by_name;
  for (const auto& item : items) {
    auto shape = item.stored->shape;
    if (item.name.transposed) std::ranges::reverse(shape);
    entries.push_back({item.name.tensor, options.dtype ? element_name(asked) : item.stored->dtype, shape});
    result.bytes += tensor_bytes(entries.back());
    by_name.emplace(item.name.tensor, &item);
  }
  result.tensors = static_cast<std::int64_t>(entries.size());
  const auto written = options.dtype ? asked : stored_dtype(entries.front());

  AtomicFolder folder(out);
  const TensorSource source = [&](const TensorEntry& entry, const PutBytes& put) {
    const auto& item = *by_name.at(entry.name);
    const auto values = at::empty(entry.shape, at::TensorOptions().dtype(scalar_type(stored_dtype(entry))));
    read_into(*reader, *item.stored, item.name.transposed, values);
    put({static_cast<const std::byte*>(values.const_data_ptr()), static_cast<std::size_t>(values.nbytes())});
  };
  TensorFolderOptions shards;
  shards.max_shard_bytes = options.max_shard_bytes;
  result.files = write_tensor_files(folder.path(), entries, source, shards);
  write_file_atomically(folder.path() / "config.json", config_text(part.config, original, head, written, options));
  result.files.emplace_back("config.json");
  for (const auto& [name, text] : original.files) {
    write_file_atomically(folder.path() / name, text);
    result.files.push_back(name);
  }
  const auto tokenizer = tokenizer_folder(model.companions, options.tower);
  for (auto& name : copy_tokenizer_files(tokenizer, folder.path())) result.files.push_back(std::move(name));
  folder.commit();
  return result;
}

}  // namespace orthant
