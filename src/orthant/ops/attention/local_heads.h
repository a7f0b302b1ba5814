// The heads that a rank has of a joined projection. Internal to this layer.
#pragma once

#include "orthant/graph/heads.h"
#include "orthant/nn/binding.h"

namespace orthant {

// Of the operation's heads, where `qkv` is the joined projection.
inline Heads local_heads(const Binding& b, int qkv) {
  const bool whole = b.tensor == nullptr || b.placement(qkv).dims.back().cuts.empty();
  return local_heads(b.attributes(), whole ? 1 : b.tensor->degree());
}

}  // namespace orthant
