// Stages that share a pp coordinate. A schedule that gives every stage a queue of its own becomes one of pp
// coordinates: what a pp coordinate does next is decided by running the queues on paper.
#pragma once

#include <vector>

#include "orthant/schedule/stage_costs.h"
#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// `queues` has stage s alone in row s; `pp_coordinates` has one entry per stage, every one from 0 to the largest. A
// pp coordinate runs whichever of its queues' next actions can start first; of several, a backward before a forward
// before a weight gradient, then the earlier microbatch, then the later stage. The order within a stage stays.
// Deterministic: ranks that are given the same costs make the same table. ConfigError when the queues wait for each
// other for ever.
StageTable share_pp_coordinates(const StageTable& queues, const std::vector<int>& pp_coordinates,
                                const StageEdges& edges, const StageCosts& costs);

}  // namespace orthant
