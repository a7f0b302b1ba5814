#include "orthant/specs/model_config.h"

#include <fmt/format.h>

#include <array>

#include "orthant/base/nearest.h"
#include "orthant/specs/presets.h"

namespace orthant {
namespace {

const std::array<std::string, 2> kKinds = {"llama", "trimodal"};

// The kind that a model's preset implies; its key is refused when it names none.
std::string kind_of_preset(const JsonReader& model, const std::string& preset) {
  const auto family = family_of_preset(preset);
  if (family && family != PresetFamily::bert) return std::string(family_name(*family));
  if (family) {
    model.fail("preset", fmt::format("\"{}\" is the preset of a tower, not of a model", preset),
               fmt::format("set kind to \"trimodal\" and primary.preset to \"{}\"", preset));
  }
  auto names = preset_names(PresetFamily::llama);
  for (auto& name : preset_names(PresetFamily::trimodal)) names.push_back(std::move(name));
  model.fail("preset", fmt::format("unknown preset \"{}\"", preset), did_you_mean(preset, names));
}

}  // namespace

ModelConfig read_model(JsonReader model) {
  const auto preset = model.find<std::string>("preset");
  const std::string kind = preset && !model.has("kind") ? model.get<std::string>("kind", kind_of_preset(model, *preset))
                                                        : model.require<std::string>("kind");
  if (kind == kKinds[0]) return read_llama(model);
  if (kind == kKinds[1]) return read_trimodal(model);
  model.fail("kind", fmt::format("unknown model kind \"{}\"", kind), did_you_mean(kind, kKinds));
}

GraphSpec build_spec(const ModelConfig& config, const WorkSize& work) {
  const auto* llama = std::get_if<LlamaConfig>(&config);
  GraphSpec spec = llama != nullptr ? llama_spec(*llama, work) : trimodal_spec(std::get<TrimodalConfig>(config), work);
  freeze(spec, frozen_patterns(config));
  return spec;
}

std::string_view model_kind(const ModelConfig& config) {
  return kKinds[config.index()];
}

std::int64_t vocab_size(const ModelConfig& config) {
  const auto* llama = std::get_if<LlamaConfig>(&config);
  return llama != nullptr ? llama->vocab_size : std::get<TrimodalConfig>(config).primary.vocab_size;
}

std::int64_t max_sequence(const ModelConfig& config) {
  const auto* llama = std::get_if<LlamaConfig>(&config);
  return llama != nullptr ? llama->max_position_embeddings : std::get<TrimodalConfig>(config).primary.max_sequence();
}

const std::vector<std::string>& frozen_patterns(const ModelConfig& config) {
  return std::visit([](const auto& model) -> const std::vector<std::string>& { return model.freeze; }, config);
}

}  // namespace orthant
