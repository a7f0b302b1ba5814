// The three products of a linear layer, without autograd: what linear, attention and the MLP's second half are made of.
// Matrices are 2-D [tokens, features]. Callers run below autograd: see BelowAutograd. Local.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// While one lives, ATen's functions skip the autograd layer: nothing is recorded, and no version is counted. Deferred
// work opens its own, for it runs outside of backward.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// x as [tokens, features], contiguous. A view where possible.
at::Tensor as_matrix(const at::Tensor& x);

// x W^T (+ b) (+ residual), a new tensor. bias and residual may be undefined; the residual is not modified.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual);

// gy W: the gradient of x.
at::Tensor project_back(const at::Tensor& gy, const at::Tensor& weight);

// weight.gradient += gy^T x, bias.gradient += column sums of gy (bias may be nullptr), each in one pass over the
// gradient and none where the parameter is frozen. Runs now or is queued: see Note [Weight gradients].
void add_projection_gradient(Pass& pass, Parameter& weight, Parameter* bias, const at::Tensor& gy, const at::Tensor& x);

}  // namespace orthant::nn
