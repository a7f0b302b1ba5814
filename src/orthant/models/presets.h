// Published model sizes, and small ones for tests, by name. A configuration's `preset` key gives defaults that its
// other keys override. llama3.1-8b, llama3.1-70b and llama3-405b have the scaling of rotary frequencies of Llama 3.1;
// models in the style of GPT-3 (gpt3-175b, gpt-1t, ...) are of kind gpt2.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/bert/encoder.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {

// Named as the models' kinds; bert: also towers of a trimodal model.
enum class PresetFamily { llama, bert, trimodal, gpt2, encoder_lm, qwen3, mistral };
inline constexpr std::array<PresetFamily, 7> kPresetFamilies = {
    PresetFamily::llama,      PresetFamily::bert,  PresetFamily::trimodal, PresetFamily::gpt2,
    PresetFamily::encoder_lm, PresetFamily::qwen3, PresetFamily::mistral};

PresetFamily preset_family(LlamaFamily family);
std::string_view family_name(PresetFamily family);
std::vector<std::string> preset_names(PresetFamily family);
std::optional<PresetFamily> family_of_preset(std::string_view name);

// Of key `preset`: an unknown name, with the nearest one, or one of another family.
Problem find_preset_problem(PresetFamily family, std::string_view name);

// ConfigError when there is no such preset in the family.
LlamaConfig llama_preset(std::string_view name);  // of qwen3 and mistral, too
BertConfig bert_preset(std::string_view name);
TrimodalConfig trimodal_preset(std::string_view name);
Gpt2Config gpt2_preset(std::string_view name);
EncoderLmConfig encoder_lm_preset(std::string_view name);

}  // namespace orthant
