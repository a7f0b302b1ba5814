// Qwen3: a Llama that normalises every head of queries and keys before their rotation.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen3;
const Family& qwen3_family();

// Of the config.json of all Qwens.
void read_qwen_keys(JsonReader& reader, LlamaConfig& config);
void write_qwen_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
