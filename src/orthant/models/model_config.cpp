#include "orthant/models/model_config.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

// In the order of ModelConfig; then those that are a Llama, too.
const std::array<std::string, 7> kModelKinds = {"llama", "trimodal", "bert", "gpt2", "encoder_lm", "qwen3", "mistral"};

// The kind that a model's preset implies; its key is refused when it names none.
std::string kind_of_preset(const JsonReader& model, const std::string& preset) {
  if (const auto family = family_of_preset(preset)) return std::string(family_name(*family));
  std::vector<std::string> names;
  for (const auto family : kPresetFamilies) {
    for (auto& name : preset_names(family)) names.push_back(std::move(name));
  }
  model.fail("preset", fmt::format("unknown preset \"{}\"", preset), did_you_mean(preset, names));
}

// The configuration of the folder at `path`. Nothing without one, or when a preset says all that it would.
std::optional<ModelConfig> read_folder(JsonReader& model) {
  const auto kind = model.has("kind") ? model.find<std::string>("kind") : std::nullopt;
  const bool without = kind == "trimodal" || kind == "encoder_lm";
  if (without && !model.has("path")) return std::nullopt;
  if (kind == "trimodal") {
    model.fail("path", "a trimodal model has no folder of its own", "set primary.path and secondary.path");
  }
  if (kind == "encoder_lm") {
    model.fail("path", "there are no Hugging Face models of kind encoder_lm", "remove path");
  }
  const auto path = model.find<std::string>("path");
  if (!path || model.has("preset")) return std::nullopt;
  return read_hugging_face_config(*path);
}

template <typename Config>
Config defaults_from(const std::optional<ModelConfig>& folder) {
  return folder ? std::get<Config>(*folder) : Config{};
}

}  // namespace

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
  if (const auto family = llama_family_named(kind)) {
    return read_llama(model, folder ? std::get<LlamaConfig>(*folder) : llama_defaults(*family));
  }
  if (kind == kModelKinds[1]) return read_trimodal(model);
  if (kind == kModelKinds[2]) return read_bert_model(model, defaults_from<BertModelConfig>(folder));
  if (kind == kModelKinds[3]) return read_gpt2(model, defaults_from<Gpt2Config>(folder));
  if (kind == kModelKinds[4]) return read_encoder_lm(model);
  model.fail("kind", fmt::format("unknown model kind \"{}\"", kind), did_you_mean(kind, kModelKinds));
}

namespace {

GraphSpec plain_spec(const LlamaConfig& config, const WorkSize& work) {
  return llama_spec(config, work);
}
GraphSpec plain_spec(const TrimodalConfig& config, const WorkSize& work) {
  return trimodal_spec(config, work);
}
GraphSpec plain_spec(const BertModelConfig& config, const WorkSize& work) {
  return bert_model_spec(config, work);
}
GraphSpec plain_spec(const Gpt2Config& config, const WorkSize& work) {
  return gpt2_spec(config, work);
}
GraphSpec plain_spec(const EncoderLmConfig& config, const WorkSize& work) {
  return encoder_lm_spec(config, work);
}

GraphSpec plain_forward_spec(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
  const DecoderUse use{.loss = false, .mask = options.mask};
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) return llama_spec(*llama, work, use);
  if (const auto* bert = std::get_if<BertModelConfig>(&config)) return bert_forward_spec(*bert, work, options.pooler);
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) return gpt2_spec(*gpt2, work, use);
  if (const auto* encoder = std::get_if<EncoderLmConfig>(&config)) return encoder_lm_spec(*encoder, work, use);
  throw ConfigError(fmt::format("a model of kind {} has no forward pass of its own", model_kind(config)),
                    {.remedy = "use a model of kind llama, qwen3, mistral, bert, gpt2 or encoder_lm"});
}

const BertConfig& first_tower(const TrimodalConfig& config) {
  return config.primary;
}
const BertConfig& first_tower(const BertModelConfig& config) {
  return config.encoder;
}
template <typename Config>
const Config& first_tower(const Config& config) {
  return config;
}

}  // namespace

GraphSpec build_spec(const ModelConfig& config, const WorkSize& work) {
  GraphSpec spec = std::visit([&](const auto& model) { return plain_spec(model, work); }, config);
  freeze(spec, frozen_patterns(config));
  return spec;
}

GraphSpec forward_spec(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
  GraphSpec spec = plain_forward_spec(config, work, options);
  freeze(spec, {"*"});
  return spec;
}

std::string_view model_kind(const ModelConfig& config) {
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) return llama_family_name(llama->family);
  return kModelKinds[config.index()];
}

std::int64_t vocab_size(const ModelConfig& config) {
  return std::visit([](const auto& model) { return first_tower(model).vocab_size; }, config);
}

std::int64_t max_sequence(const ModelConfig& config) {
  return std::visit([](const auto& model) { return first_tower(model).max_sequence(); }, config);
}

const std::vector<std::string>& frozen_patterns(const ModelConfig& config) {
  return std::visit([](const auto& model) -> const std::vector<std::string>& { return model.freeze; }, config);
}

}  // namespace orthant
