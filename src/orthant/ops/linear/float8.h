// Products of matrices that are rounded to e4m3 row by row: see Note [Float8 products] in program/float8.h. Local.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn {

// A matrix whose row r is `values[r] * scales[r]`.
struct Float8Matrix {
  at::Tensor values;  // e4m3 [rows, width], contiguous
  at::Tensor scales;  // [rows, 1], powers of two in float32, in float64 of a float64 matrix; NaN of a row that is not
                      // finite
};

// x [rows, width], rounded.
Float8Matrix round_float8(const at::Tensor& x);

// x^T, rounded: rows of the result are columns of x.
Float8Matrix round_float8_turned(const at::Tensor& x);

// left right^T (+ bias) (+ residual) in `dtype`: the product with its bias is rounded once, then the sum. bias and
// residual may be undefined.
at::Tensor float8_product(const Float8Matrix& left, const Float8Matrix& right, at::ScalarType dtype,
                          const at::Tensor& bias, const at::Tensor& residual);

// By ATen's functions, on any device: what kernels are held to.
namespace plain {
Float8Matrix round_float8(const at::Tensor& x);
at::Tensor float8_product(const Float8Matrix& left, const Float8Matrix& right, at::ScalarType dtype,
                          const at::Tensor& bias);
}  // namespace plain

// On a CUDA device, for rows that are multiples of 16 elements; turned, for as many rows, too.
namespace device {
bool serves_float8(const at::Tensor& x);
bool serves_float8_turned(const at::Tensor& x);
Float8Matrix round_float8(const at::Tensor& x);
Float8Matrix round_float8_turned(const at::Tensor& x);
}  // namespace device

}  // namespace orthant::nn
