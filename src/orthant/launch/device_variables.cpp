#include "orthant/launch/device_variables.h"

#include <fmt/format.h>

#include <charconv>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

constexpr int kLeastQueues = 8;  // the system's own number

}  // namespace

void check_device_variables(const Environment& environment, bool sends_messages, int rank) {
  const auto* blocking = find_variable(environment, "CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && *blocking != "0") {
    throw ConfigError(
        fmt::format("CUDA_LAUNCH_BLOCKING={} over NCCL: every rank would wait inside the receives that it starts early",
                    *blocking),
        {.remedy = "unset CUDA_LAUNCH_BLOCKING, or use --backend gloo", .rank = rank});
  }
  const auto* queues = find_variable(environment, kQueuesVariable);
  int count = kLeastQueues;
  if (queues != nullptr) std::from_chars(queues->data(), queues->data() + queues->size(), count);
  if (sends_messages && count < kLeastQueues) {
    throw ConfigError(
        fmt::format("CUDA_DEVICE_MAX_CONNECTIONS={} over NCCL with messages between ranks: streams share queues of the "
                    "device, where a receive that is started early holds up the send that its peer waits for",
                    *queues),
        {.remedy = "unset CUDA_DEVICE_MAX_CONNECTIONS (ranks set 32), or use --backend gloo", .rank = rank});
  }
}

}  // namespace orthant::launch
