// Variables of CUDA under which ranks that exchange over NCCL would wait for one another for ever.
#pragma once

#include "orthant/launch/environment.h"

namespace orthant::launch {

// ConfigError that names the variable. `sends_messages`: ranks start receives before they are sent to, as those of a
// pipeline do.
void check_device_variables(const Environment& environment, bool sends_messages, int rank);

}  // namespace orthant::launch
