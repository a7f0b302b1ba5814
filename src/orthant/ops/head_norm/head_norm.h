// RMSNorm of every head of queries and of keys inside a joined projection [tokens, (heads + 2 kv_heads) * head_size],
// without autograd. Local: a rank that has some of the heads makes a summand of the weights' gradients.
#pragma once

#include "orthant/ops/norm/norm_pass.h"

namespace orthant::nn {

struct HeadNorms {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_size = 1;
  double eps = 0;
  Parameter* query = nullptr;  // [head_size]
  Parameter* key = nullptr;
};

// y as qkv, values as they were; statistics [tokens, heads + kv_heads].
Normalized head_norm_forward(const at::Tensor& qkv, const HeadNorms& norms);

// The gradient of qkv, undefined unless parts.input. Adds to the weights' gradients where parts.weights.
at::Tensor head_norm_backward(const at::Tensor& gy, const at::Tensor& qkv, const at::Tensor& statistics,
                              const HeadNorms& norms, NormParts parts);

}  // namespace orthant::nn
