#include "orthant/cli/planned_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orthant/base/json_reader.h"
#include "orthant/launch/scripts.h"
#include "orthant/models/presets.h"
#include "orthant/plan/estimate/plan_model.h"
#include "orthant/train/run_config.h"
#include "orthant/train/suggested_config.h"

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of the planner's own kinds, `gpt` is trained as another one with these sizes.
void describe(const nlohmann::json& section, std::vector<std::string>& assignments) {
  const bool gpt = section.value("kind", "") == "gpt";
  if (section.contains("kind")) {
    assignments.push_back(fmt::format("model.kind={}", trained_kind(section["kind"].get<std::string>())));
  } else if (const auto* family = family_of_preset(section.value("preset", ""))) {
    assignments.push_back(fmt::format("model.kind={}", family->name));
  }
  for (const auto& [key, value] : section.items()) {
    if (key == "kind" || key.starts_with("_comment")) continue;
    assignments.push_back(fmt::format("model.{}={}", key, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (!gpt || section.contains("preset")) return;
  if (!section.contains("vocab_size")) assignments.emplace_back("model.vocab_size=51200");
  if (!section.contains("max_position_embeddings") && !section.contains("n_positions")) {
    assignments.emplace_back("model.max_position_embeddings=2048");
  }
}

void add_generated_data(std::vector<std::string>& assignments) {
  const bool classifies = std::ranges::any_of(families(), [&](const Family* family) {
    return family->task == Task::classification &&
           std::ranges::find(assignments, fmt::format("model.kind={}", family->name)) != assignments.end();
  });
  assignments.emplace_back(classifies ? "data.kind=random" : "data.kind=tokens");
}

std::vector<std::string> keys_of(const nlohmann::json& document, const std::string& section) {
  std::vector<std::string> keys;
  if (!document.contains(section) || !document[section].is_object()) return keys;
  for (const auto& [key, value] : document[section].items()) keys.push_back(section + "." + key);
  return keys;
}

// In the order of the file, so that its user finds everything in its place.
Json read_in_order(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

void set(Json& document, const std::string& key, const std::string& text) {
  std::string place = "/" + key;
  std::ranges::replace(place, '.', '/');
  const auto value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  document[Json::json_pointer(place)] = value.is_discarded() ? Json(text) : value;
}

void set_mesh(Json& document, const Mesh& mesh) {
  Json degrees = Json::object();
  for (const Axis axis : mesh.active_axes()) degrees[std::string(axis_name(axis))] = mesh.degree(axis);
  document["mesh"] = degrees;
}

}  // namespace

PlannedModel planned_model(const std::string& name) {
  PlannedModel model{name, PlannedModel::Form::named, {}};
  const auto* family = family_of_preset(name);
  if (family != nullptr && family->task == Task::classification) {
    model.form = PlannedModel::Form::described;
    model.assignments = {fmt::format("model.kind={}", family->name), "model.preset=" + name};
    add_generated_data(model.assignments);
  }
  if (family != nullptr || std::filesystem::is_directory(name)) return model;
  const auto document = JsonDocument::load(name).value();
  const bool section = document.contains("model");
  if (!section && document.contains("model_type") && std::filesystem::path(name).filename() == "config.json") {
    const auto folder = std::filesystem::path(name).parent_path();
    model.name = folder.empty() ? "." : folder.string();
    return model;
  }
  const auto& described = section ? document["model"] : document;
  if (section && described.value("kind", "") != "gpt") {
    model.form = PlannedModel::Form::configuration;
    return model;
  }
  model.form = PlannedModel::Form::described;
  describe(described, model.assignments);
  add_generated_data(model.assignments);
  return model;
}

RunLine run_line(const PlannedModel& model) {
  if (model.form == PlannedModel::Form::configuration) {
    return {.start = "orthant train --config " + launch::shell_quote(model.name), .note = ""};
  }
  if (model.form == PlannedModel::Form::named) {
    return {.start = fmt::format("orthant init --model {} run.json && orthant train --config run.json",
                                 launch::shell_quote(model.name)),
            .note = "on generated text; yours: add --data FILE to orthant init"};
  }
  RunLine run{.start = "orthant train", .note = "on generated data; --write-config FILE writes it down"};
  for (const auto& assignment : model.assignments) run.start += " --set " + launch::shell_quote(assignment);
  return run;
}

std::vector<std::string> configured_keys(const PlannedModel& model) {
  if (model.form != PlannedModel::Form::configuration) return {};
  const auto document = JsonDocument::load(model.name).value();
  auto keys = keys_of(document, "parallel");
  for (auto& key : keys_of(document, "precision")) keys.push_back(std::move(key));
  return keys;
}

nlohmann::ordered_json config_of_plan(const PlannedModel& model, const PlanSettings& settings, bool card) {
  Json document;
  if (model.form == PlannedModel::Form::configuration) {
    document = read_in_order(model.name);
  } else if (model.form == PlannedModel::Form::named) {
    SuggestOptions options;
    options.model = model.name;
    options.card = card;
    document = suggest_config(options).config;
  } else {
    document = load_run_document("", model.assignments).value();
  }
  set_mesh(document, settings.mesh);
  for (const auto& [key, value] : train_settings(settings)) set(document, key, value);
  for (const char* section : {"parallel", "precision"}) {  // what was said of other values
    if (document[section].contains("_comment")) document[section]["_comment"] = "Chosen by orthant plan.";
  }
  read_run_config(JsonDocument::parse(document.dump(), {.source = "the planned configuration"}));
  return document;
}

}  // namespace orthant::cli
