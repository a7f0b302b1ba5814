// Where this user keeps what can be made again, such as compiled kernels. Local.
#pragma once

#include <filesystem>

#include "orthant/launch/environment.h"

namespace orthant::launch {

// ORTHANT_CACHE, else `orthant` in XDG_CACHE_HOME, else `.cache/orthant` in HOME; empty when none is set. Need not
// exist. ConfigError when ORTHANT_CACHE is a relative path.
std::filesystem::path cache_folder(const Environment& environment);

}  // namespace orthant::launch
