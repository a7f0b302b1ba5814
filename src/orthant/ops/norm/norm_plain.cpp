#include <ATen/ATen.h>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::nn::plain {
namespace {

// (x - mean) rstd, or x rstd, in the statistics' dtype.
at::Tensor normalised(Norm kind, const at::Tensor& x, const at::Tensor& statistics) {
  const at::Tensor wide = x.to(statistics.scalar_type());
  if (kind == Norm::rms) return wide * statistics;
  return (wide - statistics.slice(1, 0, 1)) * statistics.slice(1, 1, 2);
}

}  // namespace

Normalized norm(Norm kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const at::Tensor wide = x.to(kernels::compute_dtype(x));
  at::Tensor statistics;
  if (kind == Norm::rms) {
    statistics = wide.square().mean(1, /*keepdim=*/true).add_(eps).rsqrt_();
  } else {
    const at::Tensor mean = wide.mean(1, /*keepdim=*/true);
    const at::Tensor rstd = (wide - mean).square_().mean(1, /*keepdim=*/true).add_(eps).rsqrt_();
    statistics = at::cat({mean, rstd}, 1);
  }
  at::Tensor y = normalised(kind, wide, statistics).mul_(weight);
  if (bias.defined()) y.add_(bias);
  return {y.to(x.scalar_type()), statistics};
}

NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid) {
  const at::Tensor n = normalised(kind, input.x, input.statistics);
  const at::Tensor wide = gy.to(n.scalar_type());
  NormGradients gradients;
  if (parts.weights) {
    gradients.weight = wide * n;
    if (kind == Norm::layer) gradients.bias = wide;
  }
  if (parts.input) {
    const at::Tensor scaled = wide * input.weight;
    at::Tensor gx = scaled - n * (scaled * n).mean(1, /*keepdim=*/true);
    if (kind == Norm::layer) gx.sub_(scaled.mean(1, /*keepdim=*/true));
    const at::Tensor rstd = kind == Norm::rms ? input.statistics : input.statistics.slice(1, 1, 2);
    gradients.x = gx.mul_(rstd).to(gy.scalar_type());
    if (grid != nullptr) gradients.dropped = apply_dropout(*grid, gradients.x);
  }
  return gradients;
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutGrid* grid) {
  if (grid == nullptr) return residual + x;
  const at::Tensor wide = x.to(kernels::compute_dtype(x));
  return apply_dropout(*grid, wide).add_(residual).to(x.scalar_type());
}

}  // namespace orthant::nn::plain
