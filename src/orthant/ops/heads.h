// Attributes of operations over attention's heads. Internal to this layer.
#pragma once

#include "orthant/ops/functions.h"

namespace orthant {

// heads, kv_heads, head_size: of the whole model.
void set_heads(Attributes& attributes, const ops::Heads& heads);

}  // namespace orthant
