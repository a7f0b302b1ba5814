// What a device needs before the first step: its kernels, compiled or found on disk. Local.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// Kernels for the graph's values in the compute dtype; nothing on the CPU. Ranks of a host that start together share
// the work through the cache on disk.
void prepare_device(const TrainerOptions& options, const GraphSpec& graph);

// A host tensor on the device, through pinned memory: neither side waits for the other. x itself on the CPU.
at::Tensor to_device(const at::Tensor& x, at::Device device);

// Whether runs with these options repeat to the bit.
bool repeats_to_the_bit(const TrainerOptions& options);

}  // namespace orthant
