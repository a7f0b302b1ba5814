// Attention of a generation: the new tokens' keys and values go into the unit's cache, and every token meets what its
// own sequence has there. A kernel on the CPU in float32 and float64; ATen's formulas for all else and as the kernel's
// oracle. Local.
#pragma once

#include "orthant/nn/key_cache.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {

// qkv [tokens, (heads + 2 kv_heads) * head_size], which is written over; its heads are turned by `options.rotary`
// (tables of all positions; undefined: they stay as they are). Gives [tokens, heads * head_size]. InternalError where
// cache, step and qkv do not fit together.
at::Tensor cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                            const KeyCache& cache);

// The same by ATen's formulas.
at::Tensor plain_cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                                  const KeyCache& cache);

}  // namespace orthant::nn
