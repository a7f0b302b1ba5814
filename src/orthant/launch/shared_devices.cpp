#include "orthant/launch/shared_devices.h"

#include <fmt/format.h>

namespace orthant::launch {
namespace {

constexpr const char* kAllocator = "PYTORCH_CUDA_ALLOC_CONF";
constexpr const char* kFraction = "per_process_memory_fraction";
constexpr double kShared = 0.9;  // the rest is for what each process needs beside its tensors

}  // namespace

void share_devices(Environment& environment, int rank, int num_nodes, int ranks_per_device) {
  if (ranks_per_device <= 1) return;
  environment.try_emplace("NCCL_HOSTID", fmt::format("{}{}", kSharedIdentity, rank));
  environment.try_emplace("NCCL_IB_DISABLE", "1");
  if (num_nodes == 1) environment.try_emplace("NCCL_SOCKET_IFNAME", "lo");
  auto& allocator = environment[kAllocator];
  if (allocator.find(kFraction) != std::string::npos) return;
  allocator += fmt::format("{}{}:{:.4f}", allocator.empty() ? "" : ",", kFraction, kShared / ranks_per_device);
}

std::string shared_devices_text(int ranks_per_device) {
  if (ranks_per_device <= 1) return {};
  return fmt::format(
      "{} ranks share a GPU: each has an NCCL_HOSTID of its own and {:.3g}% of the device's memory; what they exchange "
      "goes through sockets",
      ranks_per_device, 100 * kShared / ranks_per_device);
}

}  // namespace orthant::launch
