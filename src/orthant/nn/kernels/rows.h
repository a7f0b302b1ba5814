// Sums of rows: columns of a gradient, rows of embedding tables. See Note [Kernels] in isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

template <class T>
struct RowKernels {
  // out[j] = sum of x[i * width + j] over `rows` rows; zeros when there are none.
  void (*sum_columns)(T* out, const T* x, std::int64_t rows, std::int64_t width);
  // out = rows[0] + … + rows[num_rows - 1], in this order.
  void (*sum_rows)(T* out, const T* const* rows, std::int64_t num_rows, std::int64_t width);
  // to += from.
  void (*add_row)(T* to, const T* from, std::int64_t width);
};

ORTHANT_KERNELS(RowKernels<float>);
ORTHANT_KERNELS(RowKernels<double>);

}  // namespace orthant::nn::kernels
