// NCCL: the backend for CUDA tensors, a GPU for each rank, or several ranks on one with a host identity each. Built as
// nccl.cpp when libtorch has it, else as no_nccl.cpp. See Note [NCCL] there.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "orthant/comm/call_failure.h"
#include "orthant/comm/call_watch.h"
#include "orthant/comm/store.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

bool nccl_available();

// Collective over the group's members: connects them. `store` must be below a key of its own. Throws ConfigError
// without NCCL.
std::unique_ptr<Transport> make_nccl_transport(std::shared_ptr<CallWatch> watch, Store store, ChannelMembers members,
                                               at::Device device, double timeout_seconds);

}  // namespace orthant::comm
