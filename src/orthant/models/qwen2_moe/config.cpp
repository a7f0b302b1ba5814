#include "orthant/models/qwen2_moe/config.h"

#include "orthant/models/llama/variant.h"

namespace orthant {

LlamaConfig qwen2_moe_defaults() {
  LlamaConfig config;
  config.variant = &kQwen2Moe;
  config.hidden_size = 2048;
  config.num_hidden_layers = 24;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 16;
  config.intermediate_size = 5632;
  config.vocab_size = 151936;
  config.max_position_embeddings = 32768;
  config.attention_bias = true;
  config.experts = {.count = 60, .per_token = 4, .inner = 1408, .normalised = false, .shared_inner = 5632};
  return config;
}

void read_qwen2_moe_experts(JsonReader& reader, LlamaConfig& config) {
  ExpertLayers& experts = config.experts;
  experts.count = reader.get<std::int64_t>("num_experts", experts.count);
  experts.per_token = reader.get<std::int64_t>("num_experts_per_tok", experts.per_token);
  experts.inner = reader.get<std::int64_t>("moe_intermediate_size", experts.inner);
  experts.shared_inner = reader.get<std::int64_t>("shared_expert_intermediate_size", experts.shared_inner);
  experts.normalised = reader.get<bool>("norm_topk_prob", experts.normalised);
  experts.step = reader.get<std::int64_t>("decoder_sparse_step", experts.step);
  read_dense_layers(reader, experts.dense_layers);
}

const Family& qwen2_moe_family() {
  static const Family kFamily = [] {
    Family family = llama_like_family("qwen2_moe");
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : qwen2_moe_defaults());
    };
    family.presets = qwen2_moe_presets;
    family.hugging_face = &qwen2_moe_hugging_face();
    return family;
  }();
  return kFamily;
}

constinit const LlamaVariant kQwen2Moe = {.family = qwen2_moe_family,
                                          .defaults = qwen2_moe_defaults,
                                          .class_name = "Qwen2Moe",
                                          .output_bias = false,
                                          .attention_bias = "qkv_bias",
                                          .read_experts = read_qwen2_moe_experts,
                                          .read_keys = read_qwen2_moe_keys,
                                          .write_keys = write_qwen2_moe_keys};

}  // namespace orthant
