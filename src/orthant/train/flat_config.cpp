#include "orthant/train/flat_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "orthant/base/json_reader.h"
#include "orthant/data/data_kind.h"
#include "orthant/files/path_facts.h"
#include "orthant/models/presets.h"
#include "orthant/train/foreign_names.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

// Programs that read this form work on texts of up to this many tokens.
constexpr std::int64_t kSequence = 512;

// Collects assignments to keys of the sections, each with the flat key it came from.
class Sections {
 public:
  explicit Sections(JsonReader& flat) : flat_(flat), document_(JsonDocument::parse("{}", {.hint = hint_of_key})) {}

  template <typename Value>
  void set(std::string_view origin_key, std::string_view key, const Value& value) {
    const auto origin = origin_key.empty() ? std::string("flat form") : flat_.origin(origin_key);
    document_.apply_override(fmt::format("{}={}", key, nlohmann::json(value).dump()), origin);
  }

  JsonDocument done() { return document_; }

 private:
  JsonReader& flat_;
  JsonDocument document_;
};

// A tower's model and tokenizer, both by one name.
void set_tower(JsonReader& flat, Sections& sections, const std::string& tower) {
  const auto key = tower + "_tokenizer";
  const auto name = flat.require<std::string>(key);
  sections.set(key, "data." + key, name);
  const auto folder = find_model_folder(name);
  if (folder && is_there(std::filesystem::path(*folder) / "config.json")) {
    sections.set(key, fmt::format("model.{}.path", tower), *folder);
    return;
  }
  const auto* const family = family_of_preset(name);
  if (family == nullptr || family->task != Task::masked_token) {
    flat.fail(
        key, fmt::format("\"{}\" is neither the folder of a model nor a known size", name),
        fmt::format("put its folder (config.json, model.safetensors, tokenizer.json or vocab.txt) at models/{}", name));
  }
  sections.set(key, fmt::format("model.{}.preset", tower), name);
}

void set_data(JsonReader& flat, Sections& sections) {
  sections.set("", "data.kind", kTableKind);
  sections.set("", "data.sequence_length", kSequence);
  sections.set("label_name", "data.label", flat.require<std::string>("label_name"));
  sections.set("primary_text_name", "data.primary_text", flat.require<std::string>("primary_text_name"));
  sections.set("secondary_text_name", "data.secondary_text", flat.require<std::string>("secondary_text_name"));
  sections.set("tab_field_list", "data.tabular", flat.get<std::vector<std::string>>("tab_field_list", {}));
  if (const auto weights = flat.get<std::vector<double>>("class_weights", {}); !weights.empty()) {
    sections.set("class_weights", "data.class_weights", weights);
  }
}

void set_model(JsonReader& flat, Sections& sections) {
  sections.set("", "model.kind", first_family(Task::classification).name);
  set_tower(flat, sections, "primary");
  set_tower(flat, sections, "secondary");
  const auto common = flat.require<std::int64_t>("hidden_common_dim");
  sections.set("hidden_common_dim", "model.projection", common);
  const auto columns = flat.get<std::vector<std::string>>("tab_field_list", {}).size();
  if (columns > 0) {
    sections.set("tab_field_list", "model.tabular.input_dim", columns);
    sections.set("hidden_common_dim", "model.tabular.hidden_dim", common);
  }
  sections.set("fusion_hidden_dim", "model.fusion.hidden_size", flat.require<std::int64_t>("fusion_hidden_dim"));
  sections.set("fusion_dropout", "model.fusion.dropout", flat.get<double>("fusion_dropout", 0.1));
  const auto classes = flat.get<std::int64_t>("num_classes", 2);
  if (flat.get<bool>("is_binary", classes == 2) != (classes == 2)) {
    flat.fail("is_binary", fmt::format("contradicts num_classes {}", classes), "is_binary is true for 2 classes");
  }
  sections.set("num_classes", "model.num_labels", classes);
}

}  // namespace

bool is_flat_config(const JsonDocument& document) {
  const auto& value = document.value();
  return value.is_object() && (value.contains("label_name") || value.contains("primary_text_name"));
}

JsonDocument sections_of_flat_config(const JsonDocument& flat_document) {
  JsonReader flat(flat_document);
  Sections sections(flat);
  set_model(flat, sections);
  set_data(flat, sections);
  sections.set("lr", "optimizer.lr", flat.get<double>("lr", 2e-5));
  sections.set("weight_decay", "optimizer.weight_decay", flat.get<double>("weight_decay", 0.01));
  sections.set("", "optimizer.clip", 1.0);
  sections.set("", "lr_schedule.kind", "linear");
  sections.set("", "lr_schedule.final_fraction", 0.0);
  sections.set("warmup_steps", "lr_schedule.warmup_steps", flat.get<std::int64_t>("warmup_steps", 0));
  sections.set("", "train.global_batch_size", 32);
  sections.set("", "train.epochs", 10);
  sections.set("", "parallel.microbatches", 4);
  flat.finish();
  return sections.done();
}

}  // namespace orthant
