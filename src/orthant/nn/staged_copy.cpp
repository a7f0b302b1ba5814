#include "orthant/nn/staged_copy.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace orthant::nn {
namespace {

at::Tensor bytes_of(const at::Tensor& dense) {
  return dense.view({-1}).view(at::kByte);
}

}  // namespace

// In the copies' own memory.
void StagedCopy::make_room(Block& block, std::int64_t bytes) const {
  if (!block.arrived) {
    block.arrived.emplace(device_.type());
    block.taken.emplace(device_.type());
  }
  if (block.bytes.defined() && block.bytes.numel() >= bytes) return;
  block.bytes = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
}

void StagedCopy::bring(const at::Tensor& on_host, const at::Tensor& place) {
  const auto count = static_cast<std::int64_t>(place.nbytes());
  if (count == 0) return;
  if (device_.is_cpu()) {
    place.copy_(on_host);
    return;
  }
  const c10::impl::VirtualGuardImpl device(device_.type());
  const c10::Stream reader = device.getStream(device_);
  if (!copies_) copies_ = device.getStreamFromGlobalPool(device_);
  Block& block = blocks_[next_++ % blocks_.size()];
  {
    const c10::StreamGuard on_copies(*copies_);
    make_room(block, count);
    block.taken->block(*copies_);
    block.bytes.narrow(0, 0, count).copy_(bytes_of(on_host), /*non_blocking=*/true);
    block.arrived->record(*copies_);
  }
  block.arrived->block(reader);
  bytes_of(place).copy_(block.bytes.narrow(0, 0, count), /*non_blocking=*/true);
  block.bytes.record_stream(reader);  // for when it is let go
  block.taken->record(reader);
}

}  // namespace orthant::nn
