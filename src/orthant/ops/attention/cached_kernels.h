// Attention of the next tokens of a sequence over keys and values that lie in blocks (nn/key_cache.h), and the rotation
// and filing of what is new. Each block is read once for all query heads that share a key/value head. See Note
// [Kernels] in nn/kernels/isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

// One sequence and one key/value head: `queries` tokens of `heads` query heads, the first at position `past`. Tokens of
// q and of out lie their strides apart, head h begins h * head_size further. Block b of keys is [head_size,
// kCacheBlock] and begins blocks[b] * block_stride after `keys`; one of values is [kCacheBlock, head_size].
template <class T>
struct CachedGroup {
  std::int64_t queries = 0;
  std::int64_t past = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  std::int64_t window = 0;  // a query meets so many keys, its own and those before it; 0: all
  T scale = 1;
  const T* q = nullptr;
  std::int64_t q_stride = 0;
  T* out = nullptr;
  std::int64_t out_stride = 0;
  const T* keys = nullptr;
  const T* values = nullptr;
  std::int64_t block_stride = 0;
  const std::int32_t* blocks = nullptr;
  T* scratch = nullptr;  // cached_scratch() of them, 64-byte aligned
};

// A token's heads as they are turned by its position: half-split, x1 cos - x2 sin and x2 cos + x1 sin.
template <class T>
struct TurnedHeads {
  T* heads = nullptr;
  std::int64_t count = 0;
  std::int64_t head_size = 0;
  const T* cos = nullptr;  // [head_size / 2]
  const T* sin = nullptr;
};

// Rows of queries and heads that are computed together, and keys between two roundings of their sums.
inline constexpr std::int64_t kCachedRows = 8;
inline constexpr std::int64_t kCachedKeys = 128;

// Elements of scratch of one group: probabilities, queries side by side, outputs.
constexpr std::int64_t cached_scratch(std::int64_t head_size) {
  const std::int64_t rounded = (head_size + 15) / 16 * 16;
  return kCachedRows * kCachedKeys + 2 * kCachedRows * rounded;
}

template <class T>
struct CachedKernels {
  void (*attend)(const CachedGroup<T>& group) = nullptr;
  void (*turn)(const TurnedHeads<T>& heads) = nullptr;
};

ORTHANT_KERNELS(CachedKernels<float>);
ORTHANT_KERNELS(CachedKernels<double>);

}  // namespace orthant::nn::kernels
