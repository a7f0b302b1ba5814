// A transport for tensors of the host and one for those of a device, side by side: what ranks decide together never
// touches a device, and what a step sums never leaves it.
#pragma once

#include <memory>

#include "orthant/comm/transport.h"

namespace orthant::comm {

// Calls without tensors go to `host`.
std::unique_ptr<Transport> make_device_split_transport(std::unique_ptr<Transport> host,
                                                       std::unique_ptr<Transport> device);

}  // namespace orthant::comm
