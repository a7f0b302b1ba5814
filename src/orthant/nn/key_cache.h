// Keys and values of the tokens that a generation has seen, in blocks of a few tokens: a sequence has a table of the
// blocks it holds, so that sequences of all lengths share one memory without gaps. The blocks that belong to a sequence
// are chosen elsewhere (serve/scheduler.h), the same on every rank that has a part of the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/base/cache_block.h"

namespace orthant::nn {

// Of one unit with attention, and of this rank's key/value heads. Undefined for other units.
struct KeyCache {
  at::Tensor keys;    // [blocks, kv_heads, head_size, kCacheBlock]: the keys of a block side by side
  at::Tensor values;  // [blocks, kv_heads, kCacheBlock, head_size]
};

// The next tokens of one sequence.
struct CachedSequence {
  std::int64_t first = 0;   // of them in the row
  std::int64_t tokens = 0;  // how many
  std::int64_t past = 0;    // tokens before them: the position of the first
  // Block i has positions [i, i + 1) * kCacheBlock; what lies behind a window may be any number.
  std::vector<std::int32_t> blocks = {};
};

struct CachedStep {
  std::vector<CachedSequence> sequences;  // one after the other in the row, without gaps
  std::int64_t most_positions = 0;        // that any sequence may have
};

}  // namespace orthant::nn
