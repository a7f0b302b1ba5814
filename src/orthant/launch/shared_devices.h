// Several ranks on one GPU over NCCL, which refuses two ranks of one host on one device: each gets a host identity of
// its own, and a part of the device's memory. What they exchange then goes through sockets: for tests and small models.
#pragma once

#include <string>

#include "orthant/launch/job.h"

namespace orthant::launch {

// What such an NCCL_HOSTID begins with; the rank follows.
inline constexpr const char* kSharedIdentity = "orthant-rank-";

// Adds what a rank needs: NCCL_HOSTID, on one host NCCL_SOCKET_IFNAME=lo, NCCL_IB_DISABLE=1, and the part of the
// device's memory that libtorch may take. What is set already stays. Nothing for one rank per device. Local.
void share_devices(Environment& environment, int rank, int num_nodes, int ranks_per_device);

// What the launcher says of it: "4 ranks share a GPU: ...".
std::string shared_devices_text(int ranks_per_device);

}  // namespace orthant::launch
