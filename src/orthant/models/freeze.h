// Marks parameters as not trained, by patterns of their full names.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

// Every parameter that a pattern (base/wildcard.h) matches becomes untrainable, and its product leaves its users'
// weight_flops. Where nothing is trained nothing is deferred. What gradients of inputs cost is left as it is.
// ConfigError when a pattern matches nothing.
void freeze(GraphSpec& spec, const std::vector<std::string>& patterns);

}  // namespace orthant
