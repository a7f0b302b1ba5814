// The heads that a rank has of a joined projection. Internal to this layer.
#pragma once

#include <algorithm>

#include "orthant/nn/binding.h"

namespace orthant {

struct LocalHeads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 1;
};

// Of the operation's heads, where `qkv` is the joined projection; key/value heads fewer than ranks are held in copies.
inline LocalHeads local_heads(const Binding& b, int qkv) {
  const Attributes& attributes = b.attributes();
  const int degree = b.tensor == nullptr || b.placement(qkv).dims.back().cuts.empty() ? 1 : b.tensor->degree();
  return {attributes.integer("heads") / degree, std::max<std::int64_t>(attributes.integer("kv_heads") / degree, 1),
          attributes.integer("head_size")};
}

}  // namespace orthant
