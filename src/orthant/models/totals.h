// Sums over a spec: parameters, FLOPs of a microbatch, bytes of a unit's states. Of the whole model, before any
// sharding.
#pragma once

#include <cstdint>

#include "orthant/graph/spec.h"

namespace orthant {

struct GraphTotals {
  std::int64_t parameters = 0;  // a tied one once
  std::int64_t trainable = 0;
  double forward_flops = 0;
  double total_flops = 0;  // forward and both parts of backward, without recomputation
  friend bool operator==(const GraphTotals&, const GraphTotals&) = default;
};

GraphTotals totals(const GraphSpec& spec);

struct StateTypes {
  DType parameters = DType::float32;  // as stored and updated; the optimizer's moments too
  DType compute = DType::float32;
  DType reduce = DType::float32;   // as gradients are accumulated and summed
  int moments = 2;                 // per parameter: AdamW 2, SGD with momentum 1, SGD 0
  bool splits_parameters = false;  // the compute copy is their upper half, and only the rest is stored besides
};

// Of a unit's own parameters; frozen ones have neither gradient nor moments.
struct StateBytes {
  std::int64_t parameters = 0;
  std::int64_t compute_copy = 0;  // 0 when stored and compute dtypes agree
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t total() const { return parameters + compute_copy + gradients + moments; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

StateBytes state_bytes(const UnitSpec& unit, const StateTypes& types);

}  // namespace orthant
