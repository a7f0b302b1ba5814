#include "orthant/ops/activation/activation.h"

#include <ATen/ATen.h>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/activation/cpu_kernels.h"

namespace orthant::nn {
namespace {

// ATen's name for the approximation of a gelu.
const char* approximation(ActivationKind kind) {
  return kind == ActivationKind::gelu_tanh ? "tanh" : "none";
}

template <class T>
void activate_rows(ActivationKind kind, T* out, const T* x, std::int64_t rows, std::int64_t width) {
  const auto& table = kernels::kernels<kernels::ActivationKernels<T>>();
  switch (kind) {
    case ActivationKind::swiglu:
      return table.swiglu(out, x, rows, width);
    case ActivationKind::gelu:
      return table.gelu(out, x, rows * width);
    case ActivationKind::gelu_tanh:
      return table.gelu_tanh(out, x, rows * width);
    case ActivationKind::relu:
      return table.relu(out, x, rows * width);
    case ActivationKind::silu:
      return table.silu(out, x, rows * width);
  }
}

template <class T>
void gradient_rows(ActivationKind kind, T* d_x, T* activation, const T* x, const T* d_activation, std::int64_t rows,
                   std::int64_t width) {
  const auto& table = kernels::kernels<kernels::ActivationKernels<T>>();
  switch (kind) {
    case ActivationKind::swiglu:
      return table.swiglu_gradient(d_x, activation, x, d_activation, rows, width);
    case ActivationKind::gelu:
      return table.gelu_gradient(d_x, activation, x, d_activation, rows * width);
    case ActivationKind::gelu_tanh:
      return table.gelu_tanh_gradient(d_x, activation, x, d_activation, rows * width);
    case ActivationKind::relu:
      return table.relu_gradient(d_x, activation, x, d_activation, rows * width);
    case ActivationKind::silu:
      return table.silu_gradient(d_x, activation, x, d_activation, rows * width);
  }
}

at::Tensor fused_activate(ActivationKind kind, const at::Tensor& x) {
  const std::int64_t in = x.size(1), width = activation_width(kind, in);
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  kernels::with_element(x, [&](auto element) {
    using T = decltype(element);
    T* to = out.mutable_data_ptr<T>();
    const T* from = x.const_data_ptr<T>();
    kernels::for_rows(x.size(0), in, [&](std::int64_t begin, std::int64_t end) {
      activate_rows(kind, to + begin * width, from + begin * in, end - begin, width);
    });
  });
  return out;
}

// Leaves the activation in d_activation's memory when it is wanted.
ActivationGradient fused_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                  bool wants_activation) {
  const std::int64_t in = x.size(1), width = activation_width(kind, in);
  at::Tensor d_x = at::empty(x.sizes(), x.options());
  kernels::with_element(x, [&](auto element) {
    using T = decltype(element);
    T* to = d_x.mutable_data_ptr<T>();
    const T* from = x.const_data_ptr<T>();
    T* d = d_activation.mutable_data_ptr<T>();
    kernels::for_rows(x.size(0), in, [&](std::int64_t begin, std::int64_t end) {
      T* const d_rows = d + begin * width;
      gradient_rows(kind, to + begin * in, wants_activation ? d_rows : nullptr, from + begin * in, d_rows, end - begin,
                    width);
    });
  });
  return {d_x, wants_activation ? d_activation : at::Tensor()};
}

at::Tensor activate_alone(ActivationKind kind, const at::Tensor& x) {
  if (kernels::serve(x)) return fused_activate(kind, x);
  return x.is_cpu() ? fused_activate(kind, x.to(at::kFloat)).to(x.scalar_type()) : plain_activate(kind, x);
}

ActivationGradient gradient_alone(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                  bool wants_activation) {
  if (kernels::serve(x)) return fused_gradient(kind, x, d_activation, wants_activation);
  if (!x.is_cpu()) return plain_activation_gradient(kind, x, d_activation, wants_activation);
  const ActivationGradient wide = fused_gradient(kind, x.to(at::kFloat), d_activation.to(at::kFloat), wants_activation);
  return {wide.d_x.to(x.scalar_type()), wants_activation ? wide.activation.to(x.scalar_type()) : at::Tensor()};
}

}  // namespace

std::int64_t activation_width(ActivationKind kind, std::int64_t width) {
  return kind == ActivationKind::swiglu ? width / 2 : width;
}

at::Tensor activate(ActivationKind kind, const at::Tensor& x, const DropoutGrid* grid) {
  if (device::serves_activation(kind, x)) return device::activate(kind, x, grid);
  const at::Tensor activation = activate_alone(kind, x);
  return grid == nullptr ? activation : apply_dropout(*grid, activation);
}

ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, at::Tensor d_activation,
                                       bool wants_activation, const DropoutGrid* grid) {
  if (device::serves_activation(kind, x)) {
    return device::activation_gradient(kind, x, d_activation, wants_activation, grid);
  }
  if (grid != nullptr) d_activation = apply_dropout(*grid, d_activation);
  ActivationGradient out = gradient_alone(kind, x, d_activation, wants_activation);
  if (grid != nullptr && wants_activation) out.activation = apply_dropout(*grid, out.activation);
  return out;
}

at::Tensor plain_activate(ActivationKind kind, const at::Tensor& x) {
  if (kind == ActivationKind::relu) return at::relu(x);
  if (kind == ActivationKind::silu) return at::silu(x);
  if (kind != ActivationKind::swiglu) return at::gelu(x, approximation(kind));
  const std::int64_t inner = x.size(1) / 2;
  return at::silu(x.narrow(1, 0, inner)).mul_(x.narrow(1, inner, inner));
}

ActivationGradient plain_activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                             bool wants_activation) {
  const at::Tensor activation = wants_activation ? plain_activate(kind, x) : at::Tensor();
  if (kind == ActivationKind::relu) return {at::threshold_backward(d_activation, x, 0), activation};
  if (kind == ActivationKind::silu) return {at::silu_backward(d_activation, x), activation};
  if (kind != ActivationKind::swiglu) return {at::gelu_backward(d_activation, x, approximation(kind)), activation};
  const std::int64_t inner = x.size(1) / 2;
  const at::Tensor gate = x.narrow(1, 0, inner), up = x.narrow(1, inner, inner);
  at::Tensor d_x = at::empty(x.sizes(), x.options());
  d_x.narrow(1, 0, inner).copy_(at::silu_backward(d_activation * up, gate));
  d_x.narrow(1, inner, inner).copy_(at::silu(gate).mul_(d_activation));
  return {d_x, activation};
}

}  // namespace orthant::nn
