#include "orthant/models/qwen3/config.h"

#include "orthant/models/llama/variant.h"

namespace orthant {

LlamaConfig qwen3_defaults() {
  LlamaConfig config;
  config.variant = &kQwen3;
  config.head_dim = 128;
  config.intermediate_size = 22016;
  config.vocab_size = 151936;
  config.max_position_embeddings = 32768;
  return config;
}

const Family& qwen3_family() {
  static const Family kFamily = [] {
    Family family = llama_like_family("qwen3");
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : qwen3_defaults());
    };
    family.presets = qwen3_presets;
    family.hugging_face = &qwen3_hugging_face();
    return family;
  }();
  return kFamily;
}

constinit const LlamaVariant kQwen3 = {.family = qwen3_family,
                                       .defaults = qwen3_defaults,
                                       .class_name = "Qwen3",
                                       .norms_heads = true,
                                       .read_keys = read_qwen3_keys,
                                       .write_keys = write_qwen3_keys};

}  // namespace orthant
