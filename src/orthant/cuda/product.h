// A product of matrices as a library of a CUDA device sees it, and a plan to compute it. Memory is row by row:
//   out[rows, columns] = left[rows, depth] right[depth, columns] (+ added[rows, columns]) (+ bias[columns])
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "orthant/cuda/kernel.h"

namespace orthant::cuda {

// All that plans are chosen by: products with equal values run by the same plan.
struct Product {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  // Whether memory holds the transposed matrix, and elements from one row of memory to the next.
  bool left_turned = false;
  bool right_turned = false;
  std::int64_t left_stride = 0;
  std::int64_t right_stride = 0;
  std::int64_t out_stride = 0;  // `added` has the same
  Element in = Element::float32;
  Element out = Element::float32;  // `added` and `bias` have the same
  bool tf32 = false;               // float32 is rounded to 10 bits of mantissa before it is multiplied
  bool adds = false;               // there is `added`
  bool has_bias = false;
  int alignment = 16;  // bytes that all addresses are multiples of: 2, 4, 8 or 16

  friend auto operator<=>(const Product&, const Product&) = default;
};

// "bfloat16 [4096, 1024] [1024, 512]^T + bias".
std::string to_text(const Product& product);

// One way of a library to compute a product. The words are the library's own.
struct ProductPlan {
  std::array<std::uint64_t, 8> words = {};
  std::size_t workspace_bytes = 0;

  friend bool operator==(const ProductPlan&, const ProductPlan&) = default;
};

// Addresses on the device.
struct ProductMemory {
  void* out = nullptr;
  const void* left = nullptr;
  const void* right = nullptr;
  const void* added = nullptr;  // may be `out`
  const void* bias = nullptr;
  void* workspace = nullptr;  // of the plan's bytes
};

}  // namespace orthant::cuda
