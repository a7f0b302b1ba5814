#include "orthant/nn/projection.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/columns.h"
#include "orthant/nn/matrix.h"
#include "orthant/nn/product_plans.h"
#include "orthant/nn/tensor_tokens.h"

namespace orthant::nn {

#if defined(__x86_64__)
bool cpu_multiplies(at::ScalarType dtype) {
  static const bool bfloat16 = __builtin_cpu_supports("avx512bf16");
  static const bool float16 = __builtin_cpu_supports("avx512fp16");
  return dtype == at::kBFloat16 ? bfloat16 : dtype == at::kHalf ? float16 : true;
}
#else
bool cpu_multiplies(at::ScalarType dtype) {
  return dtype != at::kBFloat16 && dtype != at::kHalf;
}
#endif

namespace {

// The dtype in which this CPU multiplies matrices of `dtype` fast.
at::ScalarType product_dtype(const at::Tensor& x) {
  const at::ScalarType dtype = x.scalar_type();
  return x.is_cpu() && !cpu_multiplies(dtype) ? at::kFloat : dtype;
}

// Whether a plan computed it.
bool by_plan(ProductPlans* products, const ProductOperands& operands) {
  return products != nullptr && products->multiply(operands);
}

// left right, computed in the dtype of this CPU's choice.
at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right, ProductPlans* products) {
  const at::ScalarType dtype = product_dtype(left);
  if (dtype != left.scalar_type()) return matrix_times(left.to(dtype), right.to(dtype)).to(left.scalar_type());
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  if (!by_plan(products, {out, left, right, {}, {}})) multiply_into(out, left, right, /*add=*/false);
  return out;
}

}  // namespace

at::Tensor as_matrix(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  return dense.dim() == 2 ? dense
                          : dense.view({dense.numel() / std::max<std::int64_t>(dense.size(-1), 1), dense.size(-1)});
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual,
                   ProductPlans* products) {
  const at::ScalarType dtype = product_dtype(x);
  if (dtype != x.scalar_type()) {
    at::Tensor y = matrix_times(x.to(dtype), weight.t().to(dtype));
    if (bias.defined()) y.add_(bias);
    if (residual.defined()) y.add_(residual);
    return y.to(x.scalar_type());
  }
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  project_into(y, x, weight, bias, residual, products);
  return y;
}

void project_into(at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const at::Tensor& residual, ProductPlans* products) {
  const at::Tensor turned = weight.t();
  if (by_plan(products, {y, x, turned, residual, bias})) return;
  if (residual.defined() && bias.defined()) {
    at::add_out(y, residual, bias);
  } else if (residual.defined() || bias.defined()) {
    y.copy_(residual.defined() ? residual : bias);
  }
  multiply_into(y, x, turned, /*add=*/residual.defined() || bias.defined());
}

at::Tensor project_out(const at::Tensor& x, const Parameter& weight, const Parameter* bias, const at::Tensor& residual,
                       const Pass& pass) {
  const at::Tensor bias_value = bias == nullptr ? at::Tensor() : bias->value;
  const at::Tensor added = residual.defined() ? as_matrix(residual) : at::Tensor();
  const bool sums = pass.tensor != nullptr && weight.cut.row();
  if (!sums) return project(x, weight.value, bias_value, added, pass.products);
  if (!pass.cuts_tokens()) {
    const bool first = pass.tensor->coordinate() == 0;
    const at::Tensor partial =
        project(x, weight.value, first ? bias_value : at::Tensor(), first ? added : at::Tensor(), pass.products);
    return sum_tokens(partial, weight, pass).get();
  }
  at::Tensor y = sum_tokens(project(x, weight.value, {}, {}, pass.products), weight, pass).get();
  if (bias_value.defined()) y.add_(bias_value);
  if (added.defined()) y.add_(added);
  return y;
}

at::Tensor shaped_out(const at::Tensor& y, at::IntArrayRef leading, const Parameter& weight, const Pass& pass) {
  if (leading.size() == 1 || (weight.cut.row() && pass.cuts_tokens())) return y;
  at::DimVector shape(leading.begin(), leading.end());
  shape.push_back(y.size(1));
  return at::_unsafe_view(y, shape);
}

OutGradient out_gradient(const at::Tensor& gy, const Parameter& weight, const Pass& pass, bool needs_x) {
  const at::Tensor own = as_matrix(gy);
  const bool gathers = weight.cut.row() && (needs_x || weight.trainable());
  return {gathers ? gather_tokens(own, pass).get() : own, own};
}

at::Tensor project_back(const at::Tensor& gy, const at::Tensor& weight, ProductPlans* products) {
  return matrix_product(gy, weight, products);
}

// In one product with the gradient as its output, whatever dtype it has: CUDA adds float32 products of narrow matrices,
// a CPU widens them first.
void add_product_gradient(Parameter& weight, const at::Tensor& gy, const at::Tensor& x, ProductPlans* products) {
  at::Tensor& gradient = weight.gradient;
  const at::ScalarType dtype = gradient.scalar_type();
  if (product_dtype(gradient) != dtype) {
    add_gradient(weight, matrix_product(gy.t(), x, products));
    return;
  }
  if (by_plan(products, {gradient, gy.t(), x, weight.fresh ? at::Tensor() : gradient, {}})) {
    weight.fresh = false;
    return;
  }
  if (gradient.is_cuda() && gy.scalar_type() != dtype && dtype == at::kFloat && gy.size(0) > 0) {
    at::addmm_out(gradient, gradient, gy.t(), x, dtype, weight.fresh ? 0 : 1);
  } else {
    multiply_into(gradient, gy.to(dtype).t(), x.to(dtype), /*add=*/!weight.fresh);
  }
  weight.fresh = false;
}

void add_projection_gradient(Pass& pass, Parameter& weight, Parameter* bias, const OutGradient& gy,
                             const at::Tensor& x) {
  const bool has_weight = weight.trainable();
  const bool has_bias = bias != nullptr && bias->trainable();
  if (!has_weight && !has_bias) return;
  // Without a trainable weight the queued work does not hold on to x.
  pass.add_weight_gradient(
      [&weight, bias = has_bias ? bias : nullptr, gy, x = has_weight ? x : at::Tensor(), products = pass.products] {
        BelowAutograd below;
        if (x.defined()) add_product_gradient(weight, gy.all, x, products);
        if (bias != nullptr) add_column_sums(*bias, gy.own);
      });
}

}  // namespace orthant::nn
