// The transport that moves nothing: every member is taken to hold what this rank holds. Exact for a group of one; for a
// larger group it is the `fake` backend, which lets one process walk through the program of any rank of any world.
#pragma once

#include <memory>

#include "orthant/comm/transport.h"

namespace orthant::comm {

std::unique_ptr<Transport> make_identity_transport(int size);

}  // namespace orthant::comm
