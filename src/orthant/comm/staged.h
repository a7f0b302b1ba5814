// Lets a transport that only moves host memory carry CUDA tensors: inputs are copied to pinned memory before the call
// and outputs back after it. Host tensors pass through untouched.
#pragma once

#include <memory>

#include "orthant/comm/transport.h"

namespace orthant::comm {

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner);

}  // namespace orthant::comm
