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

// On a CUDA device, where serves_columns(): few rows, such as blocks' sums.
namespace device {
bool serves_columns(const at::Tensor& x);
at::Tensor sum_columns(const at::Tensor& x);
}  // namespace device

}  // namespace orthant::nn
