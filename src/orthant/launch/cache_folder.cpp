#include "orthant/launch/cache_folder.h"

#include <fmt/format.h>

#include "orthant/base/error.h"

namespace orthant::launch {

std::filesystem::path cache_folder(const Environment& environment) {
  const auto folder = [&](const char* name) {
    const auto* found = find_variable(environment, name);
    return std::filesystem::path(found == nullptr ? "" : *found);
  };
  if (const auto own = folder("ORTHANT_CACHE"); !own.empty()) {
    if (own.is_absolute()) return own;
    throw ConfigError(fmt::format("ORTHANT_CACHE={} is no absolute path", own.string()),
                      {.remedy = "set it to one that begins with /, or leave it out"});
  }
  if (const auto caches = folder("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "orthant";
  if (const auto home = folder("HOME"); home.is_absolute()) return home / ".cache" / "orthant";
  return {};
}

}  // namespace orthant::launch
