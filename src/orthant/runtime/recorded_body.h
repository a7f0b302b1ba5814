// What a user has recorded for a unit, checked. Local. Internal to this layer.
#pragma once

#include <string>
#include <vector>

#include "orthant/runtime/module_graph.h"

namespace orthant {

// ConfigError when it takes or gives other values than the unit names.
Body recorded_body(const std::string& unit, const Recorded& recorded, std::size_t inputs, std::size_t outputs);

// By full names. ConfigError for one that the body lacks, and for one that it does not use.
std::vector<ParameterSpec> named_parameters(const std::string& unit, std::vector<ParameterSpec> parameters,
                                            const Body& body);

}  // namespace orthant
