// Qwen3-MoE: a Qwen3 some of whose MLPs are mixtures of experts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen3Moe;
LlamaConfig qwen3_moe_defaults();

// What qwen3_moe_family() is made of.
const Family& qwen3_moe_family();
std::vector<Preset> qwen3_moe_presets();
const HuggingFaceFamily& qwen3_moe_hugging_face();
// Of a model section and of a config.json.
void read_qwen3_moe_experts(JsonReader& reader, LlamaConfig& config);
// Of a config.json.
void read_qwen3_moe_keys(JsonReader& reader, LlamaConfig& config);
void write_qwen3_moe_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
