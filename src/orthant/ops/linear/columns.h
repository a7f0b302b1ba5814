// Sums over the rows of a matrix, for gradients of biases and norms: in blocks of rows, then over the blocks, so that
// the bits do not depend on the number of threads. Local.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

inline constexpr std::int64_t kRowBlock = 256;

inline std::int64_t num_row_blocks(std::int64_t rows) {
  return (rows + kRowBlock - 1) / kRowBlock;
}

// x [rows, width], contiguous -> [width], in float64 for float64, in float32 otherwise.
at::Tensor sum_columns(const at::Tensor& x);

// parameter.gradient = (fresh ? 0 : gradient) + sum_columns(x); clears fresh. Nothing for a frozen one.
void add_column_sums(Parameter& parameter, const at::Tensor& x);

// The same of two parameters, on a CUDA device at once where both matrices have one shape.
void add_column_sums(Parameter& first, const at::Tensor& x, Parameter& second, const at::Tensor& y);

// On a CUDA device, where serves_columns(): in two stages from some rows on.
namespace device {
// out = (adds ? out : 0) + the sums of x; `out` is float32 and contiguous.
struct ColumnSums {
  at::Tensor out;
  at::Tensor x;
  bool adds = false;
};
bool serves_columns(const at::Tensor& x);
at::Tensor sum_columns(const at::Tensor& x);
void add_column_sums(const ColumnSums& sums);
void add_column_sums(const ColumnSums& first, const ColumnSums& second);
}  // namespace device

}  // namespace orthant::nn
