// Published model sizes, and small ones for tests, by name: each family has its own (models/<family>/presets.cpp). A
// configuration's `preset` key gives defaults that its other keys override.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/config_problem.h"
#include "orthant/models/family.h"

namespace orthant {

std::vector<std::string> preset_names(const Family& family);
std::vector<std::string> preset_names();  // of all families

// Null: no family has such a preset.
const Family* family_of_preset(std::string_view name);

// Of key `preset`: an unknown name, with the nearest one, or one of another family.
Problem find_preset_problem(const Family& family, std::string_view name);

// ConfigError when there is no such preset in the family.
ModelConfig preset_config(const Family& family, std::string_view name);

}  // namespace orthant
