// Reading environment variables out of a snapshot, with errors that name the variable and its value.
#pragma once

#include <optional>
#include <string>

#include "orthant/launch/job.h"

namespace orthant::launch {

// A snapshot of this process' environment, without the job token: see take_variable. Local.
Environment process_environment();

// The value, or nullptr when the variable is unset or empty. Local.
const std::string* find_variable(const Environment& environment, const std::string& name);

// A whole number of at least 0, or nothing when unset; ConfigError naming variable and value for anything else. Local.
std::optional<int> int_variable(const Environment& environment, const std::string& name);

}  // namespace orthant::launch
