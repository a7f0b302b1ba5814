// Qwen2-MoE: a Llama with biases of queries, keys and values, some of whose MLPs are mixtures of experts
// and one expert that every token passes, with a gate.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen2Moe;
LlamaConfig qwen2_moe_defaults();

// What qwen2_moe_family() is made of.
const Family& qwen2_moe_family();
std::vector<Preset> qwen2_moe_presets();
const HuggingFaceFamily& qwen2_moe_hugging_face();
// Of a model section and of a config.json.
void read_qwen2_moe_experts(JsonReader& reader, LlamaConfig& config);
// Of a config.json.
void read_qwen2_moe_keys(JsonReader& reader, LlamaConfig& config);
void write_qwen2_moe_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
