// Activations of an MLP, the dropout behind them and their gradients: fused kernels on the CPU and
// on CUDA devices, ATen's functions elsewhere and as the kernels' oracle. Matrices are [tokens, width] and contiguous.
// Local.
#pragma once

#include "orthant/ops/dropout/dropout.h"

namespace orthant::nn {

enum class ActivationKind { swiglu, gelu, gelu_tanh, relu, silu };

// Outputs per token for an input of `width`: half as many for swiglu.
std::int64_t activation_width(ActivationKind kind, std::int64_t width);

// Times the factors of a grid over the outputs, where one is given.
at::Tensor activate(ActivationKind kind, const at::Tensor& x, const DropoutGrid* grid = nullptr);

struct ActivationGradient {
  at::Tensor d_x;
  at::Tensor activation;  // activate(kind, x, grid), equal bits; undefined when not wanted
};

// Consumes d_activation: its memory may hold the result.
ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, at::Tensor d_activation,
                                       bool wants_activation, const DropoutGrid* grid = nullptr);

// The same by ATen's functions, without dropout.
at::Tensor plain_activate(ActivationKind kind, const at::Tensor& x);
ActivationGradient plain_activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                             bool wants_activation);

// On a CUDA device, where serves_activation(). Dropout is part of the same pass, but for swiglu.
namespace device {
bool serves_activation(ActivationKind kind, const at::Tensor& x);
at::Tensor activate(ActivationKind kind, const at::Tensor& x, const DropoutGrid* grid = nullptr);
ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                       bool wants_activation, const DropoutGrid* grid = nullptr);
}  // namespace device

}  // namespace orthant::nn
