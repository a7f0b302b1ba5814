#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/kernels/rows.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/norm/cpu_kernels.h"
#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::nn::fused {
namespace {

// Rows between a norm's backward and the dropout behind it: they stay in the first-level cache.
constexpr std::int64_t kRowsInCache = 8;

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

template <class T>
const T* const_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

// One forward over rows, as plain pointers: a tensor takes longer to tell its own than a short row takes.
template <class T>
struct ForwardRows {
  Norm kind;
  T* y;
  T* statistics;
  const T* x;
  const T* weight;
  const T* bias;
  std::int64_t width;
  T eps;
  const kernels::NormKernels<T>& table = kernels::kernels<kernels::NormKernels<T>>();

  ForwardRows(Norm norm_kind, const Normalized& out, const at::Tensor& input, const at::Tensor& scale,
              const at::Tensor& offset, double epsilon)
      : kind(norm_kind),
        y(data<T>(out.y)),
        statistics(data<T>(out.statistics)),
        x(const_data<T>(input)),
        weight(const_data<T>(scale)),
        bias(const_data<T>(offset)),
        width(input.size(1)),
        eps(static_cast<T>(epsilon)) {}

  void run(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = begin * width;
    if (kind == Norm::rms) {
      table.rms_forward(y + first, statistics + begin, x + first, weight, end - begin, width, eps);
    } else {
      table.layer_forward(y + first, statistics + 2 * begin, x + first, weight, bias, end - begin, width, eps);
    }
  }
};

Normalized outputs(Norm kind, const at::Tensor& x) {
  return {at::empty(x.sizes(), x.options()), at::empty({x.size(0), kind == Norm::rms ? 1 : 2}, x.options())};
}

// One backward over rows; `dweight` and `dbias` hold the sums of each block.
template <class T>
struct BackwardRows {
  Norm kind;
  T* gx;
  T* dropped;
  T* dweight;
  T* dbias;
  const T* gy;
  const T* x;
  const T* statistics;
  const T* weight;
  std::int64_t rows;
  std::int64_t width;
  const DropoutGrid* grid;
  const kernels::NormKernels<T>& table = kernels::kernels<kernels::NormKernels<T>>();
  const kernels::DropoutKernels<T>& drop = kernels::kernels<kernels::DropoutKernels<T>>();

  BackwardRows(Norm norm_kind, const NormGradients& out, const at::Tensor& gradient, const NormInput& input,
               const DropoutGrid* dropout)
      : kind(norm_kind),
        gx(data<T>(out.x)),
        dropped(data<T>(out.dropped)),
        dweight(data<T>(out.weight)),
        dbias(data<T>(out.bias)),
        gy(const_data<T>(gradient)),
        x(const_data<T>(input.x)),
        statistics(const_data<T>(input.statistics)),
        weight(const_data<T>(input.weight)),
        rows(gradient.size(0)),
        width(gradient.size(1)),
        grid(dropout) {}

  static T* at(T* base, std::int64_t offset) { return base == nullptr ? nullptr : base + offset; }

  // Rows [begin, end) of one block.
  void run(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = begin * width;
    T* weight_sums = at(dweight, begin / kRowBlock * width);
    T* bias_sums = at(dbias, begin / kRowBlock * width);
    if (kind == Norm::rms) {
      table.rms_backward(at(gx, first), weight_sums, gy + first, x + first, statistics + begin, weight, end - begin,
                         width);
    } else {
      table.layer_backward(at(gx, first), weight_sums, bias_sums, gy + first, x + first, statistics + 2 * begin, weight,
                           end - begin, width);
    }
    if (dropped == nullptr) return;
    for (std::int64_t t = begin; t < end; ++t) {
      drop.scale(dropped + t * width, gx + t * width, grid->draw, grid->index(t), width);
    }
  }

  void run_block(std::int64_t block) const {
    for (T* sums : {dweight, dbias}) {
      if (sums != nullptr) std::fill_n(sums + block * width, width, T{0});
    }
    const std::int64_t end = std::min((block + 1) * kRowBlock, rows);
    const std::int64_t step = dropped == nullptr ? kRowBlock : kRowsInCache;
    for (std::int64_t row = block * kRowBlock; row < end; row += step) run(row, std::min(row + step, end));
  }
};

}  // namespace

Normalized norm(Norm kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  Normalized out = outputs(kind, x);
  kernels::with_element(x, [&](auto element) {
    const ForwardRows<decltype(element)> forward(kind, out, x, weight, bias, eps);
    kernels::for_rows(x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) { forward.run(begin, end); });
  });
  return out;
}

NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid) {
  const std::int64_t blocks = num_row_blocks(gy.size(0));
  const auto sums = [&] { return at::empty({blocks, gy.size(1)}, gy.options()); };
  NormGradients out;
  if (parts.input) out.x = at::empty(gy.sizes(), gy.options());
  if (parts.input && grid != nullptr) out.dropped = at::empty(gy.sizes(), gy.options());
  if (parts.weights) out.weight = sums();
  if (parts.weights && kind == Norm::layer) out.bias = sums();
  kernels::with_element(gy, [&](auto element) {
    const BackwardRows<decltype(element)> backward(kind, out, gy, input, grid);
    at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) backward.run_block(block);
    });
  });
  return out;
}

Normalized dropout_add_norm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual,
                            const DropoutGrid* grid, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  Normalized out = outputs(Norm::layer, x);
  const std::int64_t width = x.size(1);
  kernels::with_element(x, [&](auto element) {
    using T = decltype(element);
    const auto& drop = kernels::kernels<kernels::DropoutKernels<T>>();
    const auto& rows = kernels::kernels<kernels::RowKernels<T>>();
    const ForwardRows<T> forward(Norm::layer, out, sum, weight, bias, eps);
    T* to = data<T>(sum);
    const T* base = const_data<T>(residual);
    const T* addend = const_data<T>(x);
    kernels::for_rows(x.size(0), width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t first = t * width;
        if (grid != nullptr) {
          drop.add(to + first, base + first, addend + first, grid->draw, grid->index(t), width);
        } else {
          const T* addends[] = {base + first, addend + first};
          rows.sum_rows(to + first, addends, 2, width);
        }
        forward.run(t, t + 1);
      }
    });
  });
  return out;
}

}  // namespace orthant::nn::fused
