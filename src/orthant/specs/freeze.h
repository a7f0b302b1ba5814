// Marks parameters as not trained, by patterns of their full names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

// '*' stands for any text, dots included: "primary.*", "layers.*.norm1.weight".
bool matches_pattern(std::string_view pattern, std::string_view name);

// Every parameter that a pattern matches becomes untrainable, and its product leaves its users' weight_flops. What
// gradients of inputs cost is left as it is. ConfigError when a pattern matches nothing.
void freeze(GraphSpec& spec, const std::vector<std::string>& patterns);

}  // namespace orthant
