// The actions that data parallelism adds to a lowered list: what is priced is what runs. Local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/schedule/actions.h"

namespace orthant {

// Gathers and frees where parameters are sharded (schedule/gathers.h), and reductions of every microbatch where
// gradients are accumulated in shards (schedule/microbatch_reductions.h). ConfigError where units of one group are not
// done with a microbatch before the next one begins in one of them.
std::vector<Action> data_actions(const std::vector<Action>& actions, const GraphSpec& graph,
                                 const DataSettings& settings);

}  // namespace orthant
