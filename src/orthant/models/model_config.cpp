#include "orthant/models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/models/family.h"
#include "orthant/models/freeze.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

// The kind that a model's preset implies; its key is refused when it names none.
std::string kind_of_preset(const JsonReader& model, const std::string& preset) {
  if (const auto* family = family_of_preset(preset)) return std::string(family->name);
  model.fail("preset", fmt::format("unknown preset \"{}\"", preset), did_you_mean(preset, preset_names()));
}

// The configuration of the folder at `path`. Nothing without one, or when a preset says all that it would.
std::optional<ModelConfig> read_folder(JsonReader& model) {
  const auto kind = model.has("kind") ? model.find<std::string>("kind") : std::nullopt;
  const auto* family = kind ? find_family(*kind) : nullptr;
  if (family != nullptr && family->hugging_face == nullptr) {
    if (!model.has("path")) return std::nullopt;
    model.fail("path", family->without_folder.path_message, family->without_folder.path_remedy);
  }
  const auto path = model.find<std::string>("path");
  if (!path || model.has("preset")) return std::nullopt;
  return read_hugging_face_config(*path);
}

// "llama, bert or gpt2": those for which `has` holds.
template <class Has>
std::string families_that(const Has& has) {
  std::vector<std::string_view> names;
  for (const Family* family : families()) {
    if (has(*family)) names.push_back(family->name);
  }
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

}  // namespace

const Family& ModelConfig::family() const {
  if (type_ == nullptr) throw InternalError("a model without a configuration");
  return type_->family(config_);
}

ModelConfig read_model(JsonReader model) {
  const auto preset = model.find<std::string>("preset");
  const auto folder = read_folder(model);
  std::string kind;
  if (model.has("kind") || (!preset && !folder)) {
    kind = model.require<std::string>("kind");
  } else {
    kind = model.get<std::string>("kind", folder ? std::string(model_kind(*folder)) : kind_of_preset(model, *preset));
  }
  if (folder && kind != model_kind(*folder)) {
    model.fail("path", fmt::format("it holds a model of kind {}; kind is {}", model_kind(*folder), kind),
               fmt::format("set kind to {}, or leave it out", model_kind(*folder)));
  }
  if (const auto* family = find_family(kind)) return family->read(model, folder ? &*folder : nullptr);
  model.fail("kind", fmt::format("unknown model kind \"{}\"", kind), did_you_mean(kind, family_names()));
}

void check_packs(const ModelConfig& config) {
  if (!config.family().packs) {
    throw ConfigError(
        fmt::format("data.pack with a model of kind {}, whose tokens see all documents of a row", model_kind(config)),
        {.remedy = fmt::format("use a model of kind {}, or set data.pack=false",
                               families_that([](const Family& other) { return other.packs; }))});
  }
  if (facts_of(config).dynamic_positions) {
    throw ConfigError(
        "data.pack with model.rope_scaling dynamic, whose frequencies depend on the length of each document",
        {.remedy = "use another rope_scaling, or set data.pack=false"});
  }
}

GraphSpec build_spec(const ModelConfig& config, const WorkSize& work) {
  if (work.packed) check_packs(config);
  GraphSpec spec = config.family().spec(config, work);
  freeze(spec, frozen_patterns(config));
  return spec;
}

GraphSpec forward_spec(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
  const Family& family = config.family();
  if (family.forward == nullptr) {
    throw ConfigError(fmt::format("a model of kind {} has no forward pass of its own", family.name),
                      {.remedy = fmt::format("use a model of kind {}", families_that([](const Family& other) {
                                               return other.forward != nullptr;
                                             }))});
  }
  GraphSpec spec = family.forward(config, work, options);
  freeze(spec, {"*"});
  return spec;
}

std::string_view model_kind(const ModelConfig& config) {
  return config.family().name;
}

std::int64_t vocab_size(const ModelConfig& config) {
  return facts_of(config).vocab_size;
}

std::int64_t max_sequence(const ModelConfig& config) {
  return facts_of(config).max_sequence;
}

std::vector<std::string> frozen_patterns(const ModelConfig& config) {
  return facts_of(config).freeze;
}

}  // namespace orthant
