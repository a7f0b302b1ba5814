// The three products of a linear layer, without autograd: what linear, attention and the MLP's second half are made of.
// Matrices are 2-D [tokens, features]. Callers run below autograd: see BelowAutograd. Local, but where a weight is cut.
//
// Note [Cut products]: over the tensor axis a column product reads all tokens and makes its own channels; a row product
// reads its own channels and makes a part of every output, which is summed. Between the two nothing travels. Forward
// sums after the row product, backward after the column product, where the sum travels while the weight's gradient is
// computed. Under sequence parallelism a sum leaves each rank its own tokens (scatter), and what needs all of them
// gathers them first: the same bytes, cut in two.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// While one lives, ATen's functions skip the autograd layer: nothing is recorded, and no version is counted. Deferred
// work opens its own, for it runs outside of backward.
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

// The same of any product; of one whose weight is cut by rows the sum over tp, with bias and residual added once. The
// residual, and the result, then hold this rank's tokens where the pass cuts them. Collective over tp then.
at::Tensor project_out(const at::Tensor& x, const Parameter& weight, const Parameter* bias, const at::Tensor& residual,
                       const Pass& pass);

// [leading..., features] of such a result; where the pass cuts tokens [own tokens, features], already so.
at::Tensor shaped_out(const at::Tensor& y, at::IntArrayRef leading, const Parameter& weight, const Pass& pass);

// gy W: the gradient of x.
at::Tensor project_back(const at::Tensor& gy, const at::Tensor& weight, ProductPlans* products = nullptr);

// The gradient of a result as backward needs it: `all` for the products, `own` for the bias. They differ only for a row
// product of a pass that cuts tokens.
struct OutGradient {
  at::Tensor all;
  at::Tensor own;
};
// `needs_x`: the input's gradient is wanted. Collective over tp where a product needs tokens of other ranks.
OutGradient out_gradient(const at::Tensor& gy, const Parameter& weight, const Pass& pass, bool needs_x);

// weight.gradient += gy^T x.
void add_product_gradient(Parameter& weight, const at::Tensor& gy, const at::Tensor& x, ProductPlans* products);

// weight.gradient += gy^T x, bias.gradient += column sums of gy (bias may be nullptr), each in one pass over the
// gradient and none where the parameter is frozen. Runs now or is queued: see Note [Weight gradients].
void add_projection_gradient(Pass& pass, Parameter& weight, Parameter* bias, const OutGradient& gy,
                             const at::Tensor& x);

}  // namespace orthant::nn
