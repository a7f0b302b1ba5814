#include "orthant/models/mixtral/config.h"

#include "orthant/models/llama/variant.h"

namespace orthant {

LlamaConfig mixtral_defaults() {
  LlamaConfig config;
  config.variant = &kMixtral;
  config.num_key_value_heads = 8;
  config.intermediate_size = 14336;
  config.max_position_embeddings = 131072;
  config.rms_norm_eps = 1e-5;
  config.rope_theta = 1e6;
  config.experts.count = 8;
  return config;
}

void read_mixtral_experts(JsonReader& reader, LlamaConfig& config) {
  ExpertLayers& experts = config.experts;
  experts.count = reader.get<std::int64_t>("num_local_experts", experts.count);
  experts.per_token = reader.get<std::int64_t>("num_experts_per_tok", experts.per_token);
}

const Family& mixtral_family() {
  static const Family kFamily = [] {
    Family family = llama_like_family("mixtral");
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : mixtral_defaults());
    };
    family.presets = mixtral_presets;
    family.hugging_face = &mixtral_hugging_face();
    return family;
  }();
  return kFamily;
}

constinit const LlamaVariant kMixtral = {.family = mixtral_family,
                                         .defaults = mixtral_defaults,
                                         .class_name = "Mixtral",
                                         .attention_bias = {},
                                         .sliding_window = true,
                                         .read_experts = read_mixtral_experts,
                                         .read_keys = read_mixtral_keys,
                                         .write_keys = write_mixtral_keys};

}  // namespace orthant
