#include "orthant/models/qwen3_moe/config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kQwen3MoeRows = {{
    {"qwen3-30b-a3b", 2048, 48, 32, 4, 6144, 151936, 40960, 1e6, 0, 128, false, 0, 128, 8, 768},
    {"qwen3-235b-a22b", 4096, 94, 64, 4, 12288, 151936, 40960, 1e6, 0, 128, false, 0, 128, 8, 1536},
    {"qwen3-moe-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 32, false, 0, 8, 2, 48},
}};

constexpr std::array<ModuleRow, 6> kQwen3MoeModules = {{
    {"layers.*.attention.q_norm", "layers.*.self_attn.q_norm"},
    {"layers.*.attention.k_norm", "layers.*.self_attn.k_norm"},
    {"layers.*.router", "layers.*.mlp.gate"},
    {"layers.*.experts.*.w1", "layers.*.mlp.experts.*.gate_proj"},
    {"layers.*.experts.*.w2", "layers.*.mlp.experts.*.down_proj"},
    {"layers.*.experts.*.w3", "layers.*.mlp.experts.*.up_proj"},
}};

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

// Newer files call the number of experts num_local_experts.
void read_qwen3_moe_keys(JsonReader& reader, LlamaConfig& config) {
  read_qwen_keys(reader, config);
  config.experts.count = reader.find<std::int64_t>("num_local_experts").value_or(config.experts.count);
}

}  // namespace

void read_qwen_experts(JsonReader& reader, LlamaConfig& config) {
  ExpertLayers& experts = config.experts;
  reader.read("num_experts", experts.count);
  reader.read("num_experts_per_tok", experts.per_token);
  reader.read("moe_intermediate_size", experts.inner);
  reader.read("norm_topk_prob", experts.normalised);
  reader.read("decoder_sparse_step", experts.step);
  read_dense_layers(reader, experts.dense_layers);
}

void write_qwen_experts(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_qwen_keys(config, json);
  json["num_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.per_token;
  json["moe_intermediate_size"] = config.expert_inner();
  json["norm_topk_prob"] = config.experts.normalised;
  json["decoder_sparse_step"] = config.experts.step;
  json["mlp_only_layers"] = config.experts.dense_layers;
}

const Family& qwen3_moe_family() {
  return llama_family_of<kQwen3Moe>();
}

constinit const LlamaVariant kQwen3Moe = {.name = "qwen3_moe",
                                          .family = qwen3_moe_family,
                                          .defaults = qwen3_moe_defaults,
                                          .class_name = "Qwen3Moe",
                                          .presets = kQwen3MoeRows,
                                          .modules = kQwen3MoeModules,
                                          .norms_heads = true,
                                          .read_experts = read_qwen_experts,
                                          .read_keys = read_qwen3_moe_keys,
                                          .write_keys = write_qwen_experts,
                                          .one_meaning = {"num_experts", "num_local_experts"}};

}  // namespace orthant
