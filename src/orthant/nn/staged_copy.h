// Bytes on their way from the host to a place on a device. They cross on a stream of their own, while the step before
// still computes, and are taken to their place by a copy within the device. The host waits for nothing. Local.
//
// Note [Staged copies]: two blocks of memory on the device take turns. A copy into one waits until what it held before
// has been taken from it; taking waits until the copy has ended; both waits are the device's. The place itself is
// written by the stream that reads it, so that order is that stream's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <optional>

namespace orthant::nn {

class StagedCopy {
 public:
  explicit StagedCopy(at::Device device) : device_(device) {}

  // `place` gets what `on_host` holds, for work of the current stream from now on. Both dense and of the same bytes;
  // `on_host` is pinned where the device is a CUDA device, and nobody writes to it any more. On the CPU a plain copy.
  void bring(const at::Tensor& on_host, const at::Tensor& place);

 private:
  struct Block {
    at::Tensor bytes;  // uint8
    std::optional<c10::Event> arrived;
    std::optional<c10::Event> taken;
  };
  void make_room(Block& block, std::int64_t bytes) const;

  at::Device device_;
  std::optional<c10::Stream> copies_;
  std::array<Block, 2> blocks_;
  std::size_t next_ = 0;
};

}  // namespace orthant::nn
