// The activations of mlp.h and their gradients, without autograd: fused kernels on the CPU, ATen's functions elsewhere
// and as the kernels' oracle. Matrices are [tokens, width] and contiguous. Local.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn {

enum class ActivationKind { swiglu, gelu, gelu_tanh, relu, silu };

// Outputs per token for an input of `width`: half as many for swiglu.
std::int64_t activation_width(ActivationKind kind, std::int64_t width);

at::Tensor activate(ActivationKind kind, const at::Tensor& x);

struct ActivationGradient {
  at::Tensor d_x;
  at::Tensor activation;  // activate(kind, x), equal bits; undefined when not wanted
};

// Consumes d_activation: its memory may hold the result.
ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                       bool wants_activation);

// The same by ATen's functions.
at::Tensor plain_activate(ActivationKind kind, const at::Tensor& x);
ActivationGradient plain_activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                             bool wants_activation);

// On a CUDA device, where serves_activation().
namespace device {
bool serves_activation(ActivationKind kind, const at::Tensor& x);
at::Tensor activate(ActivationKind kind, const at::Tensor& x);
ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                       bool wants_activation);
}  // namespace device

}  // namespace orthant::nn
