// Products of a few rows with a weight on a CUDA device, which read the weight once: see few_rows.cu. Local.
#pragma once

#include "orthant/nn/device_variants.h"

namespace orthant::nn::device {

// y = x weight^T (+ bias) (+ added), of x normalised by RMSNorm where a norm's weight is there. Gated: of [2 outputs,
// depth] the first half of the weight makes gates, and y = silu(gates) * ups.
struct FewRowsProduct {
  at::Tensor x;       // [rows, depth]
  at::Tensor weight;  // [outputs, depth]
  at::Tensor bias = {};
  at::Tensor added = {};  // [rows, outputs]
  at::Tensor norm_weight = {};
  double eps = 0;
  bool gated = false;
};

inline constexpr std::int64_t kMostFewRows = 32;

// Whether the kernel takes it: up to 32 rows in bfloat16 or float16 that begin at multiples of 16 bytes, of a depth
// that is a multiple of 32. A norm in front of it in bfloat16 alone: rows are weighed before they are divided, which
// may be more than float16 holds.
bool serves_few_rows(const FewRowsProduct& product);
at::Tensor few_rows(const FewRowsProduct& product);

// Of products with up to that many rows.
Variants few_rows_variants(at::ScalarType dtype, std::int64_t most_rows);

}  // namespace orthant::nn::device
