// The c10d object behind a Store handle; included by the files of this layer that talk to c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "orthant/comm/store.h"
#include "orthant/launch/store_join.h"

namespace orthant::comm {

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  bool served_here = false;
  std::shared_ptr<launch::FdExchange> descriptors = nullptr;
  std::string prefix = {};  // of the keys of descriptors
};

// Our store behind c10d's interface, for Gloo, NCCL and this layer alike.
c10::intrusive_ptr<c10d::Store> make_c10d_store(std::shared_ptr<launch::JoinedStore> joined, double timeout_seconds);

}  // namespace orthant::comm
