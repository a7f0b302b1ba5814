// Attention of a generation by the kernels of a CUDA device: see cached_attention.cu. Local.
#pragma once

#include "orthant/nn/device_variants.h"
#include "orthant/nn/key_cache.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn::device {

inline constexpr std::int64_t kTileRows = 16;    // of queries that are computed together
inline constexpr std::int64_t kChunkKeys = 256;  // of a sequence with one new token, that a block of threads takes

// Whether kernels take heads of that form: bfloat16 or float16, up to 128 channels, a multiple of 16.
bool serves_cached_heads(std::int64_t head_size, const at::TensorOptions& options);
// Whether they take this call: the step has lists for such heads.
bool serves_cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                             const KeyCache& cache);
// As nn::cached_attention(); what the lists say must fit, nobody checks it.
at::Tensor cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                            const KeyCache& cache);

Variants cached_attention_variants(at::ScalarType dtype, std::int64_t head_size);

}  // namespace orthant::nn::device
