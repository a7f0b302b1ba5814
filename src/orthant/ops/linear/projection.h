// The three products of a linear layer. Matrices are 2-D [tokens, features]. Callers run below autograd: see
// BelowAutograd. Local.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// While one lives, ATen's functions skip the autograd layer: nothing is recorded, and no version is counted.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// Whether this CPU multiplies matrices of a dtype as they are. Narrow ones are widened to float32 for products else.
bool cpu_multiplies(at::ScalarType dtype);

// x as [tokens, features], contiguous. A view where possible.
at::Tensor as_matrix(const at::Tensor& x);

// x W^T (+ b) (+ residual), a new tensor. bias and residual may be undefined; the residual is not modified. `products`,
// here and below: plans to compute by, null for libtorch's choice.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual,
                   ProductPlans* products = nullptr);

// The same into memory of its own, whose rows may lie apart, in the operands' dtype.
void project_into(at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual, ProductPlans* products = nullptr);

// gy W: the gradient of x.
at::Tensor project_back(const at::Tensor& gy, const at::Tensor& weight, ProductPlans* products = nullptr);

// weight.gradient += gy^T x, in one pass over the gradient.
void add_product_gradient(Parameter& weight, const at::Tensor& gy, const at::Tensor& x, ProductPlans* products);

}  // namespace orthant::nn
