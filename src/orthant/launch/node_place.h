// What a launcher's place in an attempt means for its ranks: the same on node 0 and on the others.
#pragma once

#include <vector>

#include "orthant/launch/node_protocol.h"
#include "orthant/launch/nodes.h"

namespace orthant::launch {

// Takes the connections to the store, which pass to the ranks. Local.
ProgramJob job_at(const Place& place, const NodeOptions& options, std::vector<Fd>& store_connections);

}  // namespace orthant::launch
