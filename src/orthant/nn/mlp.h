// The second half of an MLP: activation, dropout where there is one, then the output projection. One function, so that
// only the activation's input is kept and its output is computed again in backward, in the pass that needs the input
// anyway. Local, but where the projection is cut by rows: see Note [Cut products] in projection.h.
#pragma once

#include "orthant/nn/activation.h"
#include "orthant/nn/pass.h"

namespace orthant::nn {

// What lies between an MLP's two projections.
struct MlpMiddle {
  ActivationKind activation = ActivationKind::gelu;
  double dropout = 0;  // of the activation's output
  std::string_view site = {};
};

// dropout(activation(x)) W^T + b + residual. x [..., width], or [..., 2 * inner] for swiglu: gates, then ups, as the
// joined projection wrote them. bias or nullptr, residual [..., out] or undefined. Keeps x. With dropout x is
// [rows, inner] or [rows, sequence, inner].
at::Tensor activation_linear(const at::Tensor& x, const MlpMiddle& middle, Parameter& weight, Parameter* bias,
                             Pass& pass, const at::Tensor& residual = {});

}  // namespace orthant::nn
