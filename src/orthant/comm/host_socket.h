// Where ranks of one host hand descriptors to each other when their store passes none: torchrun's, or one that spans
// several hosts. Such a store is read by others or passes text alone, so it names a socket and never memory: the first
// rank of the host serves it at a Unix-domain socket of a random name, puts the name into the store, and both sides
// look at whom they have.
#pragma once

#include <memory>
#include <vector>

#include "orthant/comm/store.h"

namespace orthant::comm {

class HostSocket {
 public:
  // Collective over `ranks`, all of this host. CommError when the store's word is not the name of such a socket, when
  // another user listens there, or after `timeout_seconds`.
  HostSocket(Store store, const std::vector<int>& ranks, int rank, double timeout_seconds);

  launch::FdExchange& descriptors() { return *descriptors_; }

  // This rank needs it no more. Who serves it waits until that is true of all ranks; CommError after the timeout.
  void wait_until_all_have_used_it();

 private:
  void serve();
  void enter();
  std::string key(const char* what, int rank) const;

  Store store_;
  std::vector<int> ranks_;
  int rank_;
  double timeout_seconds_;
  std::shared_ptr<launch::FdExchange> descriptors_;
};

}  // namespace orthant::comm
