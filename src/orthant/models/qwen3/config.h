// Qwen3: a Llama that normalises every head of queries and keys before their rotation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen3;
LlamaConfig qwen3_defaults();

// What qwen3_family() is made of.
const Family& qwen3_family();
std::vector<Preset> qwen3_presets();
const HuggingFaceFamily& qwen3_hugging_face();
// Of a config.json.
void read_qwen3_keys(JsonReader& reader, LlamaConfig& config);
void write_qwen3_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
