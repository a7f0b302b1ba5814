// The activations between an MLP's two projections, and their gradients. The gradients also give the activation again
// (equal bits), because the pass that needs it reads its input anyway. See Note [Kernels] in isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

// gate_up and its gradient [rows, 2 * inner]: gates, then ups. Everything else [rows, inner]. Of the gradients'
// outputs, `activation` may be nullptr or d_activation itself, and d_x may be x.
template <class T>
struct ActivationKernels {
  void (*swiglu)(T* activation, const T* gate_up, std::int64_t rows, std::int64_t inner) = nullptr;
  void (*swiglu_gradient)(T* d_gate_up, T* activation, const T* gate_up, const T* d_activation, std::int64_t rows,
                          std::int64_t inner) = nullptr;
  void (*gelu)(T* activation, const T* x, std::int64_t count) = nullptr;
  void (*gelu_gradient)(T* d_x, T* activation, const T* x, const T* d_activation, std::int64_t count) = nullptr;
  void (*gelu_tanh)(T* activation, const T* x, std::int64_t count) = nullptr;
  void (*gelu_tanh_gradient)(T* d_x, T* activation, const T* x, const T* d_activation, std::int64_t count) = nullptr;
  void (*relu)(T* activation, const T* x, std::int64_t count) = nullptr;
  void (*relu_gradient)(T* d_x, T* activation, const T* x, const T* d_activation, std::int64_t count) = nullptr;
  void (*silu)(T* activation, const T* x, std::int64_t count) = nullptr;
  void (*silu_gradient)(T* d_x, T* activation, const T* x, const T* d_activation, std::int64_t count) = nullptr;
};

ORTHANT_KERNELS(ActivationKernels<float>);
ORTHANT_KERNELS(ActivationKernels<double>);

}  // namespace orthant::nn::kernels
