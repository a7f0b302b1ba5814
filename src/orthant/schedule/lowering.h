// From stage actions to actions of units and values. Data parallelism adds gathers and the like afterwards
// (schedule/data_actions.h); the result is what runs.
//
// Note [Lowered order]: F of a stage is F of its units ascending; B, W and BW are those of its units descending. Before
// a stage's F come the receives of values that other pp coordinates wrote (once per pp coordinate and microbatch,
// however many units read them); after it the sends, one per pp coordinate that reads. A unit's backward is preceded by
// the receives of its remote consumers' gradients and followed by the sends of its own, one per differentiable input
// from another pp coordinate. A channel is first in first out, so a receive is preceded by those of everything its peer
// sends earlier on that channel. Batch fields are on every rank and never sent.
//
// Note [Reduce]: a parameter is held on a pp coordinate by the lowest unit there that uses it: its owner, or the first
// borrower where the owner is elsewhere. A unit that holds a trainable parameter is reduced once a step, right after
// the last weight gradient, on this pp coordinate, of any user of what it holds.
#pragma once

#include <vector>

#include "orthant/schedule/actions.h"
#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// The list of one pp coordinate. The table, map and graph must have passed validate().
std::vector<Action> lower(const StageTable& table, const StageMap& map, const GraphSpec& graph, int pp_coordinate);

// The same with, for each action, the position in table.actions[pp_coordinate] of the stage action it came from.
struct LoweredList {
  std::vector<Action> actions;
  std::vector<int> origins;
};
LoweredList lower_with_origins(const StageTable& table, const StageMap& map, const GraphSpec& graph, int pp_coordinate);

// Forward of every unit once, in the order of the graph: for evaluation on one stage.
std::vector<Action> forward_actions(const GraphSpec& graph);

}  // namespace orthant
