#include "orthant/models/llama/variant.h"

#include <array>

#include "orthant/models/presets.h"

namespace orthant {
namespace {

constexpr std::int64_t kLlama3Positions = 8192;  // of Llama 3's first training

constexpr std::array<LlamaRow, 11> kLlamaRows = {{
    {"llama2-7b", 4096, 32, 32, 32, 11008, 32000, 4096, 1e4},
    {"llama2-13b", 5120, 40, 40, 40, 13824, 32000, 4096, 1e4},
    {"llama2-70b", 8192, 80, 64, 8, 28672, 32000, 4096, 1e4},
    {"llama3-8b", 4096, 32, 32, 8, 14336, 128256, 8192, 5e5},
    {"llama3-70b", 8192, 80, 64, 8, 28672, 128256, 8192, 5e5},
    {"llama3.1-8b", 4096, 32, 32, 8, 14336, 128256, 131072, 5e5, 8},
    {"llama3.1-70b", 8192, 80, 64, 8, 28672, 128256, 131072, 5e5, 8},
    {"llama3-405b", 16384, 126, 128, 8, 53248, 128256, 131072, 5e5, 8},
    {"llama-1b", 2048, 22, 32, 4, 5632, 32000, 2048, 1e4},
    {"llama-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4},
    {"llama-16", 32, 14, 4, 2, 96, 256, 512, 1e4},
}};

Preset preset_of(const LlamaRow& row, const LlamaVariant& variant) {
  LlamaConfig config;
  config.variant = &variant;
  config.attention_bias = variant.defaults().attention_bias;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.num_key_value_heads = row.kv_heads;
  config.head_dim = row.head_size != 0 ? row.head_size : row.hidden / row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  config.rope_theta = row.theta;
  config.rms_norm_eps = variant.preset_eps;
  config.tie_word_embeddings = row.tied;
  config.sliding_window = row.window;
  if (row.experts > 0) {
    config.experts.count = row.experts;
    config.experts.per_token = row.experts_per_token;
    config.experts.inner = row.expert_inner;
    config.experts.shared_inner = row.shared_inner;
    config.experts.normalised = row.normalised;
  }
  if (row.scaling != 0) {
    config.rope_scaling.kind = RopeScaling::Kind::llama3;
    config.rope_scaling.factor = row.scaling;
    config.rope_scaling.original_max_position_embeddings = kLlama3Positions;
  }
  return {std::string(row.name), config};
}

}  // namespace

std::vector<Preset> llama_presets(const LlamaVariant& variant) {
  std::vector<Preset> presets;
  for (const auto& row : variant.presets) presets.push_back(preset_of(row, variant));
  return presets;
}

LlamaConfig llama_preset(std::string_view name) {
  const Family* const family = family_of_preset(name);
  if (family != nullptr) {
    const ModelConfig preset = preset_config(*family, name);
    if (const auto* config = preset.get_if<LlamaConfig>()) return *config;
  }
  return get<LlamaConfig>(preset_config(llama_family(), name));
}

const Family& llama_family() {
  return llama_family_of<kLlama>();
}

constinit const LlamaVariant kLlama = {.name = "llama",
                                       .family = llama_family,
                                       .defaults = [] { return LlamaConfig(); },
                                       .class_name = "Llama",
                                       .presets = kLlamaRows,
                                       .preset_eps = 1e-5,
                                       .mlp_bias = true};

}  // namespace orthant
