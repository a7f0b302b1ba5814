// Balancing experts without a loss, as DeepSeek-V3 does it: a bias per expert is added to scores to choose experts by.
// After a step it grows by a fixed rate where the expert took fewer slots than the mean of its layer, and shrinks by it
// where the expert took more. Biases are frozen parameters (ParameterSpec::moved_by_loads): they have names, lie in
// checkpoints and are gathered like others, and no optimizer reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

// `loads`: slots that chose each expert in the step, and those dropped, of all ranks, unit after unit of the graph.
// Nothing moves where `update` [] is false. Collective over fsdp where values are gathered from shards and kept; else
// Local.
void move_router_biases(ParameterStore& store, const at::Tensor& loads, const at::Tensor& update);

}  // namespace orthant
