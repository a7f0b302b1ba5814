// Log levels by the names that options give them.
#pragma once

#include <string_view>

#include "orthant/base/log.h"

namespace orthant {

// "debug", "info", "warning", "error" or "off". Throws ConfigError that begins with `what` for any other name.
LogLevel parse_log_level(std::string_view name, std::string_view what);

}  // namespace orthant
