// Qwen3-MoE: a Qwen3 some of whose MLPs are mixtures of experts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen3Moe;
const Family& qwen3_moe_family();

// Of a model section and of a config.json, of all Qwens with experts.
void read_qwen_experts(JsonReader& reader, LlamaConfig& config);
void write_qwen_experts(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
