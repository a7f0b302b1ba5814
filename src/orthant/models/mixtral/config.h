// Mixtral: a Mistral whose MLPs are mixtures of experts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kMixtral;
LlamaConfig mixtral_defaults();

// What mixtral_family() is made of.
const Family& mixtral_family();
std::vector<Preset> mixtral_presets();
const HuggingFaceFamily& mixtral_hugging_face();
// Of a model section and of a config.json.
void read_mixtral_experts(JsonReader& reader, LlamaConfig& config);
// Of a config.json.
void read_mixtral_keys(JsonReader& reader, LlamaConfig& config);
void write_mixtral_keys(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace orthant
