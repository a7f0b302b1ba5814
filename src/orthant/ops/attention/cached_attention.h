// Attention of a generation: the new tokens' keys and values go into the unit's cache, and every token meets what its
// own sequence has there. A kernel on the CPU in float32 and float64, and on a CUDA device in bfloat16 and float16;
// ATen's formulas for all else and as the kernels' oracle. Local.
#pragma once

#include "orthant/nn/key_cache.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {

// qkv [tokens, (heads + 2 kv_heads) * head_size], which is written over; its heads are turned by `options.rotary`
// (tables of all positions; undefined: they stay as they are). Gives [tokens, heads * head_size]. InternalError where
// cache, step and qkv do not fit together.
at::Tensor cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                            const KeyCache& cache);

// Of a unit with so many key/value heads; what it holds is anything. As kernels of the device read it, where they do.
KeyCache make_key_cache(std::int64_t blocks, std::int64_t kv_heads, std::int64_t head_size,
                        const at::TensorOptions& options);

// The same by ATen's formulas.
at::Tensor plain_cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                                  const KeyCache& cache);

}  // namespace orthant::nn
