// Products of matrices, by whichever library of libtorch is fastest for the sizes at hand.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn {

// out = left right, or out += left right. All 2-D and of one dtype; out is dense and no view of an operand.
void multiply_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, bool add);

// left right.
at::Tensor matrix_times(const at::Tensor& left, const at::Tensor& right);

}  // namespace orthant::nn
