// The rules of every folder of operations. Internal to this layer.
#pragma once

#include <vector>

#include "orthant/ops/rule.h"

namespace orthant {

#define ORTHANT_OPERATION(folder) std::vector<OpRule> folder##_rules();
#include "orthant/ops/folders.inc"
#undef ORTHANT_OPERATION

}  // namespace orthant
