#include "orthant/models/mistral/config.h"

#include "orthant/models/llama/variant.h"

namespace orthant {

LlamaConfig mistral_defaults() {
  LlamaConfig config;
  config.variant = &kMistral;
  config.num_key_value_heads = 8;
  config.intermediate_size = 14336;
  config.max_position_embeddings = 131072;
  config.sliding_window = 4096;
  return config;
}

const Family& mistral_family() {
  static const Family kFamily = [] {
    Family family = llama_like_family("mistral");
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : mistral_defaults());
    };
    family.presets = mistral_presets;
    family.hugging_face = &mistral_hugging_face();
    return family;
  }();
  return kFamily;
}

constinit const LlamaVariant kMistral = {.family = mistral_family,
                                         .defaults = mistral_defaults,
                                         .class_name = "Mistral",
                                         .attention_bias = {},
                                         .sliding_window = true,
                                         .read_keys = read_mistral_keys,
                                         .write_keys = write_mistral_keys};

}  // namespace orthant
