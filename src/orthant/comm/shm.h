// Shared memory between ranks of one host: the backend for CPU tensors that never leave the machine. Adapts tensors to
// the pure `shm` layer, which has the channels, the waiting and the reductions.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "orthant/comm/transport.h"
#include "orthant/launch/fd_exchange.h"

namespace orthant::comm {

// This rank's shared memory and its view of the peers'. One per communicator; transports and buffers keep it alive.
class ShmDevice {
 public:
  static std::shared_ptr<ShmDevice> create(int rank, int num_local_ranks);
  ~ShmDevice();

  // What ranks that can share memory have in common; others are not reachable.
  static std::string host();

  // Collective over `ranks`, all of this host with this one among them: each hands its memory to the others. CommError
  // that names a rank whose memory does not come within the timeout, or is not what it should be.
  void connect(const std::vector<int>& ranks, launch::FdExchange& descriptors, double timeout_seconds);
  bool reaches(const std::vector<int>& ranks) const;
  // Whether a rank is known to have ended; false for ranks that are not reached.
  bool is_gone(int rank) const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit ShmDevice(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<ShmDevice> device, const std::string& channel,
                                              const std::vector<int>& ranks, int index, double timeout_seconds);

// A tensor in shared memory, uninitialised, 64-byte aligned: operations on it and on views of it need no staging copy.
at::Tensor allocate_shared(std::shared_ptr<ShmDevice> device, int64_t num_elements, at::ScalarType dtype);

}  // namespace orthant::comm
