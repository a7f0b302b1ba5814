// The heads of an attention: of the whole model, or of one rank of tp. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "orthant/graph/operation.h"

namespace orthant {

// A joined projection has queries, keys, values of each token, head after head.
struct Heads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 1;
};

// What a rank has of the heads that an operation's attributes name, where they are cut over so many ranks; key/value
// heads fewer than ranks are held in copies.
inline Heads local_heads(const Attributes& attributes, int degree) {
  return {attributes.integer("heads") / degree, std::max<std::int64_t>(attributes.integer("kv_heads") / degree, 1),
          attributes.integer("head_size")};
}

}  // namespace orthant
