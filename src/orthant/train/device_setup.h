// What a device needs before the first step: its kernels, compiled or found on disk. Local.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// Kernels for the graph's values in the compute dtype; nothing on the CPU. Ranks of a host that start together share
// the work through the cache on disk.
void prepare_device(const TrainerOptions& options, const GraphSpec& graph);

// Whether runs with these options repeat to the bit.
bool repeats_to_the_bit(const TrainerOptions& options);

}  // namespace orthant
