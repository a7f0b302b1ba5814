// Which dtype does what: the optimizer updates `params`, products use `compute`, gradients are added and reduced in
// `reduce`.
#pragma once

#include "orthant/graph/dtype.h"

namespace orthant {

struct Precision {
  DType params = DType::float32;
  DType compute = DType::float32;
  DType reduce = DType::float32;
  friend bool operator==(const Precision&, const Precision&) = default;
};

}  // namespace orthant
