// Variables of CUDA under which ranks that exchange over NCCL would wait for one another for ever, and the one that
// keeps them from it.
#pragma once

#include "orthant/launch/environment.h"

namespace orthant::launch {

// Streams that share a queue of the device hold each other up, and a rank has one for each communicator: so many
// queues, the most that there are, are asked for before the process first uses the device.
inline constexpr const char* kQueuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr const char* kMostQueues = "32";

// ConfigError that names the variable. `sends_messages`: ranks start receives before they are sent to, as those of a
// pipeline do.
void check_device_variables(const Environment& environment, bool sends_messages, int rank);

}  // namespace orthant::launch
