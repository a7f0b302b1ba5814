// The c10d object behind a Store handle; included by the files of this layer that talk to c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "orthant/comm/store.h"

namespace orthant::comm {

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  bool served_here = false;
};

}  // namespace orthant::comm
