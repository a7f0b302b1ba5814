#include "orthant/models/qwen2_moe/config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3/config.h"
#include "orthant/models/qwen3_moe/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kQwen2MoeRows = {{
    {"qwen1.5-moe-a2.7b", 2048, 24, 16, 16, 5632, 151936, 8192, 1e6, 0, 0, false, 0, 60, 4, 1408, 5632, false},
    {"qwen2-57b-a14b", 3584, 28, 28, 4, 18944, 151936, 131072, 1e6, 0, 0, false, 0, 64, 8, 2560, 20480, false},
    {"qwen2-moe-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 0, false, 0, 8, 2, 48, 96, false},
}};

constexpr std::array<ModuleRow, 8> kQwen2MoeModules = {{
    {"layers.*.router", "layers.*.mlp.gate"},
    {"layers.*.experts.*.w1", "layers.*.mlp.experts.*.gate_proj"},
    {"layers.*.experts.*.w2", "layers.*.mlp.experts.*.down_proj"},
    {"layers.*.experts.*.w3", "layers.*.mlp.experts.*.up_proj"},
    {"layers.*.shared_expert.w1", "layers.*.mlp.shared_expert.gate_proj"},
    {"layers.*.shared_expert.w2", "layers.*.mlp.shared_expert.down_proj"},
    {"layers.*.shared_expert.w3", "layers.*.mlp.shared_expert.up_proj"},
    {"layers.*.shared_expert_gate", "layers.*.mlp.shared_expert_gate"},
}};

constexpr const char* kSharedInner = "shared_expert_intermediate_size";

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
  read_qwen_experts(reader, config);
  reader.read(kSharedInner, config.experts.shared_inner);
}

void write_qwen2_moe_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_qwen_experts(config, json);
  json[kSharedInner] = config.experts.shared_inner;
}

}  // namespace

const Family& qwen2_moe_family() {
  return llama_family_of<kQwen2Moe>();
}

constinit const LlamaVariant kQwen2Moe = {.name = "qwen2_moe",
                                          .family = qwen2_moe_family,
                                          .defaults = qwen2_moe_defaults,
                                          .class_name = "Qwen2Moe",
                                          .presets = kQwen2MoeRows,
                                          .modules = kQwen2MoeModules,
                                          .output_bias = false,
                                          .attention_bias = "qkv_bias",
                                          .read_experts = read_qwen2_moe_experts,
                                          .read_keys = read_qwen_keys,
                                          .write_keys = write_qwen2_moe_keys};

}  // namespace orthant
