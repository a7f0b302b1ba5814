#include "orthant/nn/projection.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/columns.h"
#include "orthant/nn/matrix.h"

namespace orthant::nn {
namespace {

#if defined(__x86_64__)
bool multiplies(at::ScalarType dtype) {
  static const bool bfloat16 = __builtin_cpu_supports("avx512bf16");
  static const bool float16 = __builtin_cpu_supports("avx512fp16");
  return dtype == at::kBFloat16 ? bfloat16 : float16;
}
#else
bool multiplies(at::ScalarType) {
  return false;
}
#endif

// The dtype in which this CPU multiplies matrices of `dtype` fast.
at::ScalarType product_dtype(const at::Tensor& x) {
  const at::ScalarType dtype = x.scalar_type();
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  return narrow && x.is_cpu() && !multiplies(dtype) ? at::kFloat : dtype;
}

// left right, computed in the dtype of this CPU's choice.
at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right) {
  const at::ScalarType dtype = product_dtype(left);
  if (dtype == left.scalar_type()) return matrix_times(left, right);
  return matrix_times(left.to(dtype), right.to(dtype)).to(left.scalar_type());
}

// In one product with the gradient as its output, whatever dtype it has: CUDA adds float32 products of narrow matrices,
// a CPU widens them first.
void add_weight_gradient(Parameter& weight, const at::Tensor& gy, const at::Tensor& x) {
  at::Tensor& gradient = weight.gradient;
  const at::ScalarType dtype = gradient.scalar_type();
  if (product_dtype(gradient) != dtype) {
    add_gradient(weight, matrix_product(gy.t(), x));
    return;
  }
  if (gradient.is_cuda() && gy.scalar_type() != dtype && dtype == at::kFloat && gy.size(0) > 0) {
    at::addmm_out(gradient, gradient, gy.t(), x, dtype, weight.fresh ? 0 : 1);
  } else {
    multiply_into(gradient, gy.to(dtype).t(), x.to(dtype), /*add=*/!weight.fresh);
  }
  weight.fresh = false;
}

}  // namespace

at::Tensor as_matrix(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  return dense.dim() == 2 ? dense
                          : dense.view({dense.numel() / std::max<std::int64_t>(dense.size(-1), 1), dense.size(-1)});
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor turned = weight.t();
  const at::ScalarType dtype = product_dtype(x);
  if (dtype != x.scalar_type()) {
    at::Tensor y = matrix_times(x.to(dtype), turned.to(dtype));
    if (bias.defined()) y.add_(bias);
    if (residual.defined()) y.add_(residual);
    return y.to(x.scalar_type());
  }
  if (!residual.defined() && !bias.defined()) return matrix_times(x, turned);
  // Always memory of its own: the product is added to it.
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  if (residual.defined() && bias.defined()) {
    at::add_out(y, residual, bias);
  } else {
    y.copy_(residual.defined() ? residual : bias);
  }
  multiply_into(y, x, turned, /*add=*/true);
  return y;
}

at::Tensor project_back(const at::Tensor& gy, const at::Tensor& weight) {
  return matrix_product(gy, weight);
}

void add_projection_gradient(Pass& pass, Parameter& weight, Parameter* bias, const at::Tensor& gy,
                             const at::Tensor& x) {
  const bool has_weight = weight.trainable();
  const bool has_bias = bias != nullptr && bias->trainable();
  if (!has_weight && !has_bias) return;
  // Without a trainable weight the queued work does not hold on to x.
  pass.add_weight_gradient([&weight, bias = has_bias ? bias : nullptr, gy, x = has_weight ? x : at::Tensor()] {
    BelowAutograd below;
    if (x.defined()) add_weight_gradient(weight, gy, x);
    if (bias != nullptr) add_gradient(*bias, sum_columns(gy));
  });
}

}  // namespace orthant::nn
