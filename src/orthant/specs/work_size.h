// The work of one microbatch: what the shapes and costs of a spec are computed for.
#pragma once

#include <cstdint>

#include "orthant/graph/dtype.h"

namespace orthant {

struct WorkSize {
  std::int64_t rows = 1;
  std::int64_t sequence = 1;
  std::int64_t secondary_sequence = 0;  // of the second tower of a trimodal model; 0: as sequence
  DType compute = DType::float32;       // of activations

  // How tensor parallelism shares it. Costs are then those of one rank; shapes stay those of the whole model.
  struct TensorWork {
    int degree = 1;
    bool sequence_parallel = false;
    bool regather = false;
    bool loss_parallel = false;
    friend bool operator==(const TensorWork&, const TensorWork&) = default;
  };
  TensorWork tensor = {};

  friend bool operator==(const WorkSize&, const WorkSize&) = default;
};

}  // namespace orthant
