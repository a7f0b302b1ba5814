// Keys and values of the tokens that a generation has seen, in blocks of a few tokens: a sequence has a table of the
// blocks it holds, so that sequences of all lengths share one memory without gaps. The blocks that belong to a sequence
// are chosen elsewhere (serve/scheduler.h), the same on every rank that has a part of the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/base/cache_block.h"

namespace orthant::nn {

// Of one unit with attention, and of this rank's key/value heads. Undefined for other units. Where a device's kernels
// read it both lie in memory the other way: see make_key_cache().
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

// The same as a device's kernels read it, int64 on the device. What it says lies there alone, so that a step can be
// recorded; shapes and the numbers beside them belong to the recording.
struct CachedLists {
  at::Tensor sequences;     // [sequences, 3]: first, tokens, past; a past of -1: a place that nobody has
  at::Tensor tables;        // [sequences, blocks]: their blocks
  at::Tensor tiles;         // [tiles, 2]: a sequence, and the first of the rows that a tile takes
  at::Tensor sequence_of;   // [tokens]: of each new token
  at::Tensor positions;     // [tokens]
  std::int64_t single = 0;  // so many of the tiles, the first ones, are of sequences with one new token
  std::int64_t chunks = 1;  // of keys, that the longest of these has at most
  std::int64_t shared = 0;  // query heads of a key/value head: a row is a pair of a new token and one of them
  bool defined() const { return sequences.defined(); }
};

struct CachedStep {
  std::vector<CachedSequence> sequences;  // one after the other in the row, without gaps; none where lists say it
  std::int64_t most_positions = 0;        // that any sequence may have
  CachedLists lists = {};                 // where kernels of a device read it
};

}  // namespace orthant::nn
