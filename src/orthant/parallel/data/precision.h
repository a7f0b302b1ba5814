// Which dtype does what: the optimizer updates `params`, products use `compute`, gradients are added and reduced in
// `reduce`.
#pragma once

#include <string_view>

#include "orthant/graph/dtype.h"

namespace orthant {

// How the optimizer's copy is stored; see Note [Split master] in master_values.h.
enum class MasterKind {
  whole,           // in the dtype of `params`
  bf16_remainder,  // float32 as the bfloat16 that products use and 16 more bits
};

struct Precision {
  DType params = DType::float32;
  DType compute = DType::float32;
  DType reduce = DType::float32;
  MasterKind master = MasterKind::whole;
  bool float8 =
      false;  // products of transformer layers read e4m3 numbers; see Note [Float8 products] in program/float8.h
  bool tf32 = false;  // float32 products of a CUDA device may round what they multiply to 10 bits of mantissa
  friend bool operator==(const Precision&, const Precision&) = default;
};

// As configurations spell it.
inline std::string_view compute_name(const Precision& precision) {
  return precision.float8 ? kFloat8Name : dtype_name(precision.compute);
}

}  // namespace orthant
