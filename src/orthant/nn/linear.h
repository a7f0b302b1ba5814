// Linear: y = x W^T + b, optionally added to a residual in the same product. Input gradient in backward, weight
// gradient in place and deferrable: see Note [Weight gradients] in pass.h. Local where the weight is whole; otherwise
// Collective over tp: see Note [Cut products] in projection.h.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// x [..., in], weight [out, in], bias [out] or nullptr, residual [..., out] or undefined -> [..., out]. Where the pass
// cuts tokens, a column product takes [own tokens, in] to [rows, sequence, own out], a row product takes it back, and a
// whole weight serves own tokens. Keeps x. Several weights that lie side by side in a flat buffer are one weight: one
// product serves q, k and v.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias, Pass& pass, const at::Tensor& residual = {});

// The product itself, without autograd: x [tokens, in], weight [out, in] -> [tokens, out]. A bfloat16 or float16
// product on a CPU without such instructions is computed in float32 and rounded.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight);

}  // namespace orthant::nn
