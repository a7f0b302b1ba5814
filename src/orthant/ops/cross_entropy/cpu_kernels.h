// Rows of logits: the logarithm of the sum of their exponentials, and the gradient of a cross-entropy. See Note
// [Kernels] in isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

template <class T>
struct SoftmaxKernels {
  // log of the sum of exp(x[i]), i < width; width >= 1. NaN when one of them is.
  double (*log_sum_exp)(const T* x, std::int64_t width) = nullptr;
  // out[i] = exp(x[i] - lse) * factor; out may be x.
  void (*probabilities)(T* out, const T* x, std::int64_t width, T lse, T factor) = nullptr;
};

ORTHANT_KERNELS(SoftmaxKernels<float>);
ORTHANT_KERNELS(SoftmaxKernels<double>);

}  // namespace orthant::nn::kernels
