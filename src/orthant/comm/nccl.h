// NCCL: the backend for CUDA tensors, one rank per GPU. Built as nccl.cpp when libtorch has it, else as no_nccl.cpp.
#pragma once

#include <memory>

#include "orthant/comm/store.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

bool nccl_available();

// Collective over the group's members. `store` must be below a key of its own. Throws ConfigError without NCCL.
std::unique_ptr<Transport> make_nccl_transport(Store store, int index, int size, double timeout_seconds);

}  // namespace orthant::comm
