// Patterns of names in configurations.
#pragma once

#include <string_view>

namespace orthant {

// '*' stands for any text, dots included: "primary.*", "layers.*.norm1.weight".
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace orthant
