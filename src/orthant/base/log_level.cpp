#include "orthant/base/log_level.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

// In the order of LogLevel.
const std::array<std::string, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

}  // namespace

LogLevel parse_log_level(std::string_view name, std::string_view what) {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  const auto near = nearest(name, kLevelNames);
  throw ConfigError(fmt::format("{}: unknown log level \"{}\"", what, name),
                    {.remedy = near ? "use " + *near : "use debug, info, warning, error or off"});
}

}  // namespace orthant
