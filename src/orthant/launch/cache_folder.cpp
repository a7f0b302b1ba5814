#include "orthant/launch/cache_folder.h"

namespace orthant::launch {

std::filesystem::path cache_folder(const Environment& environment) {
  const auto folder = [&](const char* name) {
    const auto* found = find_variable(environment, name);
    return std::filesystem::path(found == nullptr ? "" : *found);
  };
  if (const auto own = folder("ORTHANT_CACHE"); own.is_absolute()) return own;
  if (const auto caches = folder("XDG_CACHE_HOME"); caches.is_absolute()) return caches / "orthant";
  if (const auto home = folder("HOME"); home.is_absolute()) return home / ".cache" / "orthant";
  return {};
}

}  // namespace orthant::launch
