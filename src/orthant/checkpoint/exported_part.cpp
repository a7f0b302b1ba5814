#include "orthant/checkpoint/exported_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/models/family.h"
#include "orthant/models/hugging_face.h"

namespace orthant {
namespace {

const std::array<std::string, 2> kTowers = {"primary", "secondary"};

GraphSpec spec_of(const ModelConfig& config) {
  const WorkSize one{.rows = 1, .sequence = 1};
  return config.family().forward != nullptr ? forward_spec(config, one, {.pooler = false}) : build_spec(config, one);
}

}  // namespace

ExportedPart::ExportedPart(const ModelConfig& model, const std::string& tower) : config_(model) {
  const auto classifier = facts_of(model).classifier;
  if (!tower.empty()) {
    if (std::ranges::find(kTowers, tower) == kTowers.end()) {
      throw ConfigError(fmt::format("unknown tower \"{}\"", tower), {.remedy = did_you_mean(tower, kTowers)});
    }
    if (!classifier) {
      throw ConfigError(fmt::format("--tower {}: a model of kind {} has no towers", tower, model_kind(model)),
                        {.remedy = "leave --tower out"});
    }
    const auto& chosen = *std::ranges::find(classifier->towers, tower, &Tower::name);
    prefix_ = chosen.prefix;
    config_ = chosen.model;
  }
  // Refuses other kinds.
  if (!is_classifier()) hugging_face_config_text(config_, HuggingFaceHead::none, DType::float32);
}

bool ExportedPart::is_classifier() const {
  return config_.family().task == Task::classification;
}

std::optional<HuggingFaceName> ExportedPart::name(const std::string& parameter, bool bare) const {
  if (is_classifier()) return HuggingFaceName{config_.family().tensor_name(config_, parameter)};
  if (!parameter.starts_with(prefix_)) return std::nullopt;
  return hugging_face_name(tensor_names(config_), parameter.substr(prefix_.size()), bare);
}

void ExportedPart::check_complete(const WeightReader& reader, const std::filesystem::path& checkpoint) const {
  std::vector<std::string> differences;
  for (const auto& unit : spec_of(config_).units) {
    for (const auto& parameter : unit.parameters) {
      const auto stored = prefix_ + parameter.name;
      const auto found = std::ranges::find(reader.entries(), stored, &TensorEntry::name);
      const auto shape = fmt::format("[{}]", fmt::join(parameter.shape, ", "));
      if (found == reader.entries().end()) {
        const auto place = name(stored, false);
        if (!place || place->body) differences.push_back(fmt::format("{}: missing, {} expected", stored, shape));
      } else if (found->shape != parameter.shape) {
        differences.push_back(
            fmt::format("{}: [{}] there, {} by config.json", stored, fmt::join(found->shape, ", "), shape));
      }
    }
  }
  if (differences.empty()) return;
  throw_differences(checkpoint.string(), "config.json", differences, "give the config.json of the run that wrote it");
}

}  // namespace orthant
