// Which devices this machine has and which of them a rank uses. Nothing here initialises CUDA.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "orthant/launch/job.h"

namespace orthant::cli {

// Whether the libtorch of this build has CUDA.
bool built_with_cuda();

// NVIDIA GPUs this process may use: those CUDA_VISIBLE_DEVICES names, else those in /dev.
int count_gpus(const launch::Environment& environment);

// ConfigError for anything but auto, cpu and cuda.
void check_device_name(const std::string& name);

// `auto` takes GPUs when there is a place for each local rank. Ranks share GPUs when `cuda` is asked for and there are
// too few.
at::Device choose_device(const std::string& name, int num_gpus, const launch::Job& job, int ranks_per_device = 1);

}  // namespace orthant::cli
