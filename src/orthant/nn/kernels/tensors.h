// From tensors to the kernels' plain memory: which tensors they serve, and loops over rows on ATen's threads. Local.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace orthant::nn::kernels {

// The kernels work on float32 and float64 in the memory of the CPU; everything else takes ATen's functions.
inline bool serve(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

// The dtype in which a tensor is computed with: float32 for narrower ones.
inline at::ScalarType compute_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// body(T()) with T = float or double, the tensor's element.
template <class Body>
void with_element(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kDouble) {
    body(double());
  } else {
    body(float());
  }
}

// body(begin, end) over rows of `width` elements, in parts that are worth a thread.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t width, const Body& body) {
  constexpr std::int64_t kElements = 32768;
  at::parallel_for(0, rows, std::max<std::int64_t>(kElements / std::max<std::int64_t>(width, 1), 1), body);
}

}  // namespace orthant::nn::kernels
