// What a user should know of a configuration that is accepted: settings that have no effect on this mesh, and what an
// explicit `zero` makes of it. One configuration runs on every mesh, so none of this is an error.
#pragma once

#include <string>
#include <vector>

#include "orthant/train/run_config.h"

namespace orthant {

// Lines for people, to be said once. `document` has been read by read_run_config(). Local.
std::vector<std::string> config_notes(const JsonDocument& document, const RunConfig& config);

}  // namespace orthant
