#include "orthant/models/qwen3_moe/config.h"

#include "orthant/models/llama/variant.h"

namespace orthant {

LlamaConfig qwen3_moe_defaults() {
  LlamaConfig config;
  config.variant = &kQwen3Moe;
  config.hidden_size = 2048;
  config.num_hidden_layers = 24;
  config.num_key_value_heads = 4;
  config.head_dim = 64;
  config.intermediate_size = 6144;
  config.vocab_size = 151936;
  config.max_position_embeddings = 32768;
  config.experts = {.count = 128, .per_token = 8, .inner = 768, .normalised = false};
  return config;
}

void read_qwen3_moe_experts(JsonReader& reader, LlamaConfig& config) {
  ExpertLayers& experts = config.experts;
  experts.count = reader.get<std::int64_t>("num_experts", experts.count);
  experts.per_token = reader.get<std::int64_t>("num_experts_per_tok", experts.per_token);
  experts.inner = reader.get<std::int64_t>("moe_intermediate_size", experts.inner);
  experts.normalised = reader.get<bool>("norm_topk_prob", experts.normalised);
  experts.step = reader.get<std::int64_t>("decoder_sparse_step", experts.step);
  read_dense_layers(reader, experts.dense_layers);
}

const Family& qwen3_moe_family() {
  static const Family kFamily = [] {
    Family family = llama_like_family("qwen3_moe");
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : qwen3_moe_defaults());
    };
    family.presets = qwen3_moe_presets;
    family.hugging_face = &qwen3_moe_hugging_face();
    return family;
  }();
  return kFamily;
}

constinit const LlamaVariant kQwen3Moe = {.family = qwen3_moe_family,
                                          .defaults = qwen3_moe_defaults,
                                          .class_name = "Qwen3Moe",
                                          .norms_heads = true,
                                          .read_experts = read_qwen3_moe_experts,
                                          .read_keys = read_qwen3_moe_keys,
                                          .write_keys = write_qwen3_moe_keys};

}  // namespace orthant
