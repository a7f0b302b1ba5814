// Gloo over TCP: the backend for CPU tensors on any number of hosts. See Note [Gloo by messages] in gloo.cpp.
#pragma once

#include <memory>
#include <string>

#include "orthant/comm/store.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

// The sockets of one rank, shared by all its Gloo transports: one listening port and one thread, however many groups.
class GlooDevice {
 public:
  // `bind_address` is the address of this host that peers connect to.
  explicit GlooDevice(const std::string& bind_address);
  ~GlooDevice();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Collective over the group's members: all connect to each other. `store` must be below a key of its own.
std::unique_ptr<Transport> make_gloo_transport(GlooDevice& device, Store store, int index, int size,
                                               double timeout_seconds);

}  // namespace orthant::comm
