#include "orthant/models/mixtral/config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/models/llama/variant.h"
#include "orthant/models/mistral/config.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 3> kMixtralRows = {{
    {"mixtral-8x7b", 4096, 32, 32, 8, 14336, 32000, 32768, 1e6, 0, 0, false, 0, 8, 2},
    {"mixtral-8x22b", 6144, 56, 48, 8, 16384, 32000, 65536, 1e6, 0, 0, false, 0, 8, 2},
    {"mixtral-tiny", 64, 2, 4, 2, 96, 256, 512, 1e4, 0, 0, false, 0, 4, 2},
}};

// In place of a Llama's MLP.
constexpr std::array<ModuleRow, 4> kMixtralModules = {{
    {"layers.*.router", "layers.*.block_sparse_moe.gate"},
    {"layers.*.experts.*.w1", "layers.*.block_sparse_moe.experts.*.w1"},
    {"layers.*.experts.*.w2", "layers.*.block_sparse_moe.experts.*.w2"},
    {"layers.*.experts.*.w3", "layers.*.block_sparse_moe.experts.*.w3"},
}};

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
  reader.read("num_local_experts", experts.count);
  reader.read("num_experts_per_tok", experts.per_token);
}

void read_mixtral_keys(JsonReader& reader, LlamaConfig& config) {
  read_mistral_keys(reader, config);
  if (reader.find<double>("router_jitter_noise").value_or(0) != 0) {
    reader.fail("router_jitter_noise", "noise on what routers read is not supported", "set router_jitter_noise to 0");
  }
}

void write_mixtral_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_mistral_keys(config, json);
  json["num_local_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.per_token;
}

}  // namespace

const Family& mixtral_family() {
  return llama_family_of<kMixtral>();
}

constinit const LlamaVariant kMixtral = {.name = "mixtral",
                                         .family = mixtral_family,
                                         .defaults = mixtral_defaults,
                                         .class_name = "Mixtral",
                                         .presets = kMixtralRows,
                                         .preset_eps = 1e-5,
                                         .modules = kMixtralModules,
                                         .attention_bias = {},
                                         .sliding_window = true,
                                         .read_experts = read_mixtral_experts,
                                         .read_keys = read_mixtral_keys,
                                         .write_keys = write_mixtral_keys};

}  // namespace orthant
