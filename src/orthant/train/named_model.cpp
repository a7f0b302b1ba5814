#include "orthant/train/named_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/nearest.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/tensor_index.h"
#include "orthant/models/example_names.h"
#include "orthant/models/family.h"
#include "orthant/models/presets.h"
#include "orthant/models/totals.h"
#include "orthant/train/model_folders.h"
#include "orthant/train/run_config.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

bool holds_weights(const fs::path& folder) {
  for (const auto& name : names_in_folder(folder)) {
    if (fs::path(name).extension() == ".safetensors") return true;
  }
  return false;
}

JsonDocument model_document(const char* key, const std::string& value) {
  return JsonDocument::parse(nlohmann::json{{"model", {{key, value}}}}.dump(), {.source = "--model"});
}

ModelConfig read_section(const JsonDocument& document) {
  return read_model(JsonReader(document).require_object("model"));
}

}  // namespace

std::int64_t num_parameters(const ModelConfig& config) {
  return totals(build_spec(config, {.rows = 1, .sequence = 2})).parameters;
}

NamedModel find_named_model(const std::string& name) {
  NamedModel model;
  if (const auto folder = find_model_folder(name)) {
    if (!is_folder(*folder)) {
      throw ConfigError(fmt::format("--model {}: is a file", name), {.remedy = "name the folder that it lies in"});
    }
    model.folder = *folder;
    model.config = find_stored_model(*folder).config;
    model.weights = holds_weights(*folder);
    model.pickles = !model.weights && std::ranges::any_of(names_in_folder(*folder), is_pickle_name);
    model.tokenizer = holds_tokenizer_files(*folder);
  } else if (family_of_preset(name) != nullptr) {
    model.preset = name;
    model.config = read_section(model_document("preset", name));
  } else {
    const auto near = nearest(name, preset_names());
    throw ConfigError(
        fmt::format("--model {}: there is no such folder, no models/{} and no such preset", name, name),
        {.remedy = near ? fmt::format("did you mean the preset {}?", *near)
                        : fmt::format("name a Hugging Face folder, or a preset such as {}", kExamplePresets)});
  }
  model.parameters = num_parameters(model.config);
  return model;
}

nlohmann::ordered_json sizes_of_folder(const std::string& folder) {
  const auto document = model_document("path", folder);
  read_section(document);
  auto section = nlohmann::ordered_json::parse(resolved_config(document)).at("model");
  section.erase("path");
  section.erase("preset");
  return section;
}

nlohmann::ordered_json small_language_model(std::int64_t vocabulary) {
  return {{"kind", first_family(Task::next_token).name},
          {"hidden_size", 256},
          {"num_hidden_layers", 6},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"intermediate_size", 704},
          {"vocab_size", vocabulary},
          {"max_position_embeddings", 512}};
}

nlohmann::ordered_json table_model(const std::optional<NamedModel>& model, std::int64_t vocabulary) {
  nlohmann::ordered_json section{{"kind", first_family(Task::classification).name}, {"shared_towers", true}};
  auto& tower = section["primary"];
  if (model && model->config.family().task == Task::classification) {
    section["preset"] = model->preset;
    tower = {{"vocab_size", vocabulary}};
  } else if (model && model->weights) {
    tower = {{"path", model->folder}};
  } else if (model && !model->folder.empty()) {
    tower = sizes_of_folder(model->folder);
    for (const char* key : {"kind", "freeze"}) tower.erase(key);
    tower["vocab_size"] = vocabulary;
  } else if (model) {
    tower = {{"preset", model->preset}, {"vocab_size", vocabulary}};
  } else {
    tower = {{"hidden_size", 128},       {"num_hidden_layers", 2},   {"num_attention_heads", 4},
             {"intermediate_size", 512}, {"vocab_size", vocabulary}, {"max_position_embeddings", 512}};
  }
  return section;
}

}  // namespace orthant
