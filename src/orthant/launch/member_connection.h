// A connection to somebody of the same job on another host: made, and proved in both directions, before it is used.
#pragma once

#include <string>

#include "orthant/launch/doorman.h"
#include "orthant/launch/handshake.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

// Connects to `who` ("node 0") at the endpoint until somebody there proves to be of this job; a stranger who listens in
// its place is told of once per reason, not believed, and tried again. Blocks; CommError at the deadline, ConfigError
// when a token is demanded there and this side has none.
Fd connect_as_member(const Endpoint& endpoint, const Membership& membership, Purpose purpose, const std::string& who,
                     double timeout_seconds, const Say& say);

}  // namespace orthant::launch
