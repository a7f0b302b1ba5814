// A product of few rows with a weight: what a step of a generation does for each text. The weight is read once, from
// its beginning to its end, at the pace of the memory; libraries cut such products for the caches, which costs more
// than the product. See Note [Kernels] in nn/kernels/isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

// y = x w^T (+ bias) (+ added). Rows of each lie their strides apart.
template <class T>
struct FewRows {
  std::int64_t rows = 0;
  std::int64_t depth = 0;
  const T* x = nullptr;
  std::int64_t x_stride = 0;
  const T* weight = nullptr;  // [outputs, depth]
  std::int64_t weight_stride = 0;
  const T* bias = nullptr;   // [outputs]; nullptr: none
  const T* added = nullptr;  // as y; nullptr: none
  std::int64_t added_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;
  const T* packed = nullptr;  // x as pack() gives it, see ops/packed_rows.h
};

inline constexpr std::int64_t kOutputsAtOnce = 24;  // that a thread should at least have

template <class T>
struct FewRowsKernels {
  // Of the packed x: 0 where it is used as it is.
  std::int64_t (*packed_elements)(std::int64_t rows, std::int64_t depth) = nullptr;
  void (*pack)(const FewRows<T>& product, T* packed) = nullptr;
  // Outputs [begin, end) of all rows.
  void (*multiply)(const FewRows<T>& product, std::int64_t begin, std::int64_t end) = nullptr;
};

ORTHANT_KERNELS(FewRowsKernels<float>);
ORTHANT_KERNELS(FewRowsKernels<double>);

}  // namespace orthant::nn::kernels
