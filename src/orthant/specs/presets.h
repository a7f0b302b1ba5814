// Published model sizes, and small ones for tests, by name. A configuration's `preset` key gives defaults that its
// other keys override. The long-context scaling of rotary frequencies that Llama 3.1 added is not part of llama3-405b.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/specs/bert.h"
#include "orthant/specs/config_problem.h"
#include "orthant/specs/llama.h"
#include "orthant/specs/trimodal.h"

namespace orthant {

enum class PresetFamily { llama, bert, trimodal };  // bert: towers of a trimodal model

std::string_view family_name(PresetFamily family);
std::vector<std::string> preset_names(PresetFamily family);
std::optional<PresetFamily> family_of_preset(std::string_view name);

// Of key `preset`: an unknown name, with the nearest one, or one of another family.
Problem find_preset_problem(PresetFamily family, std::string_view name);

// ConfigError when there is no such preset in the family.
LlamaConfig llama_preset(std::string_view name);
BertConfig bert_preset(std::string_view name);
TrimodalConfig trimodal_preset(std::string_view name);

}  // namespace orthant
