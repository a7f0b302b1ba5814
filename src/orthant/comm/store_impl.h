// The c10d object behind a Store handle; included by the files of this layer that talk to c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "orthant/comm/store.h"
#include "orthant/launch/store_join.h"

namespace orthant::comm {

// As c10d counts timeouts.
inline std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  bool served_here = false;
  std::shared_ptr<launch::FdExchange> descriptors = nullptr;
  std::string prefix = {};                                // of the keys of descriptors
  std::shared_ptr<launch::StoreClient> client = nullptr;  // null: a foreign launcher's store, or one of threads
};

// Our store behind c10d's interface, for Gloo, NCCL and this layer alike.
c10::intrusive_ptr<c10d::Store> make_c10d_store(std::shared_ptr<launch::JoinedStore> joined, double timeout_seconds);

}  // namespace orthant::comm
