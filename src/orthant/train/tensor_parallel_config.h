// The keys of the section `parallel` that speak of tensor parallelism.
#pragma once

#include "orthant/base/json_reader.h"
#include "orthant/layout/tensor_policy.h"

namespace orthant {

// sequence_parallel, loss_parallel, regather, expert_tp, plan. They are checked against the model where it is resolved,
// and have no effect on one tp rank. ConfigError.
TensorPolicy read_tensor_parallel(JsonReader& section);

}  // namespace orthant
