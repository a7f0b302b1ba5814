#include "orthant/ops/linear/projection.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/base/ranges.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/linear/few_rows.h"
#include "orthant/ops/linear/matrix.h"
#include "orthant/ops/linear/product_plans.h"
#include "orthant/ops/packed_rows.h"

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

// Note [Odd sizes]: a card's libraries multiply narrow types several times slower where a dim that lies densely in
// memory is no multiple of 8, as the words of many vocabularies. What lies beyond the last multiple is then a product
// of its own.
std::int64_t fast_part(const at::Tensor& x, std::int64_t size) {
  constexpr std::int64_t kMultiple = 8, kWorthIt = 1024;
  const bool narrow = x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf);
  return narrow && size >= kWorthIt ? size / kMultiple * kMultiple : size;
}

// Whether a few rows met the weight by the kernel that reads it once.
bool by_few_rows(at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 const at::Tensor& residual) {
  const auto dense_rows = [](const at::Tensor& of) { return !of.defined() || of.stride(1) == 1; };
  if (!kernels::serve(x) || x.size(0) > kFewRows || x.size(0) == 0 || x.size(1) == 0 || !dense_rows(x) ||
      !dense_rows(weight) || !dense_rows(y) || !dense_rows(residual) || (bias.defined() && !bias.is_contiguous())) {
    return false;
  }
  kernels::with_element(x, [&](auto element) {
    using T = decltype(element);
    const auto& table = kernels::kernels<kernels::FewRowsKernels<T>>();
    const auto start = [](const at::Tensor& of) { return of.defined() ? of.const_data_ptr<T>() : nullptr; };
    kernels::FewRows<T> product{.rows = x.size(0),
                                .depth = x.size(1),
                                .x = start(x),
                                .x_stride = x.stride(0),
                                .weight = start(weight),
                                .weight_stride = weight.stride(0),
                                .bias = start(bias),
                                .added = start(residual),
                                .added_stride = residual.defined() ? residual.stride(0) : 0,
                                .y = y.mutable_data_ptr<T>(),
                                .y_stride = y.stride(0)};
    at::Tensor packed;
    if (const auto elements = table.packed_elements(x.size(0), x.size(1)); elements > 0) {
      packed = at::empty({elements}, x.options());
      table.pack(product, packed.mutable_data_ptr<T>());
      product.packed = packed.const_data_ptr<T>();
    }
    at::parallel_for(0, weight.size(0), std::max<std::int64_t>(kernels::kOutputsAtOnce, 32768 / x.size(1)),
                     [&](std::int64_t begin, std::int64_t end) { table.multiply(product, begin, end); });
  });
  return true;
}

// left right, computed in the dtype of this CPU's choice.
at::Tensor matrix_product(const at::Tensor& left, const at::Tensor& right, ProductPlans* products) {
  const at::ScalarType dtype = product_dtype(left);
  if (dtype != left.scalar_type()) return matrix_times(left.to(dtype), right.to(dtype)).to(left.scalar_type());
  if (const auto depth = left.size(1), fast = fast_part(left, depth); fast < depth) {
    at::Tensor out = matrix_times(left.narrow(1, fast, depth - fast), right.narrow(0, fast, depth - fast));
    const at::Tensor most = left.narrow(1, 0, fast), of_right = right.narrow(0, 0, fast);
    if (!by_plan(products, {out, most, of_right, out, {}})) multiply_into(out, most, of_right, /*add=*/true);
    return out;
  }
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
  if (const auto width = weight.size(0), fast = fast_part(x, width); fast < width) {
    for (const Range columns_of_part : {Range{0, fast}, Range{fast, width}}) {
      const auto part = [&](const at::Tensor& of, std::int64_t dim) {
        return of.defined() ? of.narrow(dim, columns_of_part.begin, columns_of_part.size()) : at::Tensor();
      };
      at::Tensor columns = part(y, 1);
      project_into(columns, x, part(weight, 0), part(bias, 0), part(residual, 1), products);
    }
    return;
  }
  const at::Tensor turned = weight.t();
  if (by_plan(products, {y, x, turned, residual, bias}) || by_few_rows(y, x, weight, bias, residual)) return;
  if (y.is_cuda() && bias.defined() && !residual.defined()) {
    at::addmm_out(y, bias, x, turned);  // the library adds a vector with the product
    return;
  }
  if (residual.defined() && bias.defined()) {
    at::add_out(y, residual, bias);
  } else if (residual.defined() || bias.defined()) {
    y.copy_(residual.defined() ? residual : bias);
  }
  multiply_into(y, x, turned, /*add=*/residual.defined() || bias.defined());
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

}  // namespace orthant::nn
