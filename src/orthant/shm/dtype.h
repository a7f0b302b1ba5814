// The element types and reductions that ranks of one machine exchange through shared memory. Pure: torch's own types
// are mapped to these where tensors enter the layer.
#pragma once

#include <cstddef>

namespace orthant::shm {

enum class Dtype { f32, f64, bf16, f16, i64, i32, u8 };

enum class Reduce { sum, max };

// Bytes of one element.
constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::f64:
      return "f64";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "f16";
    case Dtype::i64:
      return "i64";
    case Dtype::i32:
      return "i32";
    case Dtype::u8:
      return "u8";
  }
  return "?";
}

}  // namespace orthant::shm
