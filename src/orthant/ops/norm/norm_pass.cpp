#include "orthant/ops/norm/norm_pass.h"

#include <ATen/ATen.h>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/linear/columns.h"

namespace orthant::nn {
namespace {

at::Tensor wide(const at::Tensor& x) {
  return x.defined() ? x.to(kernels::compute_dtype(x)) : x;
}

bool serves_device_norm(Norm kind, const at::Tensor& x) {
  return kind == Norm::rms ? device::serves_rms_norm(x) : device::serves_layer_norm(x);
}

NormGradients host_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid) {
  const NormInput wide_input = {wide(input.x), input.statistics, wide(input.weight)};
  NormGradients out = fused::norm_backward(kind, wide(gy), wide_input, parts, grid);
  if (out.x.defined()) out.x = out.x.to(gy.scalar_type());
  if (out.dropped.defined()) out.dropped = out.dropped.to(gy.scalar_type());
  return out;
}

}  // namespace

// Narrow types on the CPU are widened for the kernels and rounded after them.
Normalized norm_forward(const at::Tensor& x, const NormWeights& norm) {
  const at::Tensor& weight = norm.weight->value;
  if (serves_device_norm(norm.kind, x)) {
    return norm.kind == Norm::rms ? device::rms_norm(x, weight, norm.eps)
                                  : device::layer_norm(x, weight, norm.bias_value(), norm.eps);
  }
  if (!x.is_cpu()) return plain::norm(norm.kind, x, weight, norm.bias_value(), norm.eps);
  Normalized out = fused::norm(norm.kind, wide(x), wide(weight), wide(norm.bias_value()), norm.eps);
  out.y = out.y.to(x.scalar_type());
  return out;
}

// `residual`, where defined, is added to the input's gradient before that is dropped.
NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid, const at::Tensor& residual) {
  if (kind == Norm::rms && grid != nullptr) throw InternalError("no RMSNorm has a dropout in front of it");
  if (serves_device_norm(kind, gy)) {
    return kind == Norm::rms ? device::rms_norm_backward(gy, input, parts, residual)
                             : device::layer_norm_backward(gy, input, parts, grid, residual);
  }
  // What is added comes between the norm and the dropout, which then takes a pass of its own.
  const bool adds = parts.input && residual.defined();
  const DropoutGrid* const inner = adds ? nullptr : grid;
  NormGradients out =
      gy.is_cpu() ? host_backward(kind, gy, input, parts, inner) : plain::norm_backward(kind, gy, input, parts, inner);
  if (adds) out.x.add_(residual);
  if (adds && grid != nullptr) out.dropped = apply_dropout(*grid, out.x);
  return out;
}

void add_weight_gradients(Parameter& weight, Parameter* bias, const NormGradients& gradients) {
  if (bias == nullptr) return add_column_sums(weight, gradients.weight);
  add_column_sums(weight, gradients.weight, *bias, gradients.bias);
}

SumAndNorm sum_norm_forward(const at::Tensor& x, const at::Tensor& residual, const NormWeights& norm,
                            const DropoutGrid* grid) {
  if (device::serves_layer_norm(x)) {
    const at::Tensor sum = at::empty(x.sizes(), x.options());
    return {sum, device::dropout_add_norm(sum, x, residual, grid, norm.weight->value, norm.bias->value, norm.eps)};
  }
  if (!kernels::serve(x)) {
    const at::Tensor sum = plain::dropout_add(x, residual, grid);
    return {sum, norm_forward(sum, norm)};
  }
  const at::Tensor sum = at::empty(x.sizes(), x.options());
  return {sum, fused::dropout_add_norm(sum, x, residual, grid, norm.weight->value, norm.bias->value, norm.eps)};
}

}  // namespace orthant::nn
