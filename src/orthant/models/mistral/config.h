// Mistral: a Llama in which a token sees the last `sliding_window` tokens alone.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kMistral;
const Family& mistral_family();

// Of a config.json.
void read_mistral_keys(JsonReader& reader, LlamaConfig& config);
void write_mistral_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
