#include "orthant/ops/linear/columns.h"

#include <ATen/ATen.h>

#include "orthant/nn/kernels/rows.h"
#include "orthant/nn/kernels/tensors.h"

namespace orthant::nn {
namespace {

template <class T>
void sum_block_columns(const at::Tensor& sums, const at::Tensor& x) {
  const auto& table = kernels::kernels<kernels::RowKernels<T>>();
  const std::int64_t rows = x.size(0);
  const std::int64_t width = x.size(1);
  T* out = sums.mutable_data_ptr<T>();
  const T* from = x.const_data_ptr<T>();
  at::parallel_for(0, sums.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kRowBlock;
      table.sum_columns(out + block * width, from + first * width, std::min(kRowBlock, rows - first), width);
    }
  });
}

// Whether a kernel adds sums of x to this gradient.
bool serves_gradient(const Parameter& parameter, const at::Tensor& x) {
  const at::Tensor& gradient = parameter.gradient;
  return device::serves_columns(x) && gradient.scalar_type() == at::kFloat && gradient.is_contiguous();
}

}  // namespace

at::Tensor sum_columns(const at::Tensor& x) {
  if (device::serves_columns(x)) return device::sum_columns(x);
  if (!x.is_cpu()) return x.sum(0, /*keepdim=*/false, kernels::compute_dtype(x));
  const at::Tensor values = x.to(kernels::compute_dtype(x));
  // Without rows one empty block remains, which writes zeros.
  const std::int64_t blocks = std::max<std::int64_t>(num_row_blocks(values.size(0)), 1);
  at::Tensor sums = at::empty({blocks, values.size(1)}, values.options());
  kernels::with_element(values, [&](auto element) { sum_block_columns<decltype(element)>(sums, values); });
  return blocks == 1 ? sums.view({-1}) : sum_columns(sums);
}

void add_column_sums(Parameter& parameter, const at::Tensor& x) {
  if (!parameter.trainable()) return;
  if (!serves_gradient(parameter, x)) return add_gradient(parameter, sum_columns(x));
  device::add_column_sums({parameter.gradient, x, /*adds=*/!parameter.fresh});
  parameter.fresh = false;
}

void add_column_sums(Parameter& first, const at::Tensor& x, Parameter& second, const at::Tensor& y) {
  if (!first.trainable() || !second.trainable() || !serves_gradient(first, x) || !serves_gradient(second, y)) {
    add_column_sums(first, x);
    add_column_sums(second, y);
    return;
  }
  device::add_column_sums({first.gradient, x, !first.fresh}, {second.gradient, y, !second.fresh});
  first.fresh = second.fresh = false;
}

}  // namespace orthant::nn
