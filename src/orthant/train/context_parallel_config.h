// The key of the section `parallel` that says how attention meets rows that are cut over cp.
#pragma once

#include "orthant/base/json_reader.h"
#include "orthant/layout/context_policy.h"

namespace orthant {

// context: ring, all_to_all, gather or auto. It has no effect on one cp rank. ConfigError.
ContextPolicy read_context_parallel(JsonReader& section);

}  // namespace orthant
