// The second half of an MLP: activation, then the output projection. One function, so that only the activation's input
// is kept and its output is computed again in backward, in the pass that needs the input anyway. Local.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// (silu(gate) * up) W^T + b + residual. gate_up [..., 2 * inner]: gates, then ups, as the joined projection wrote them.
// Keeps gate_up.
at::Tensor swiglu_linear(const at::Tensor& gate_up, Parameter& weight, Parameter* bias, Pass& pass,
                         const at::Tensor& residual = {});

enum class Gelu { exact, tanh };  // erf; or the tanh approximation (GPT-2)

// gelu(x) W^T + b + residual. Keeps x.
at::Tensor gelu_linear(const at::Tensor& x, Gelu kind, Parameter& weight, Parameter* bias, Pass& pass,
                       const at::Tensor& residual = {});

}  // namespace orthant::nn
