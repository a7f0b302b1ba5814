// Where sharded parameters become full and shards again, as actions of a rank's list. Lowering knows nothing of shards;
// this pass puts gather and free around what uses them, as early as a bound on full groups of units allows.
//
// Note [Gathers]: a unit's parameters must be full for its F, and for its B and BW when their formulas read them (a
// table lookup's do not, nor do those of a unit that takes no part in backward); W multiplies what the forward pass
// kept and needs none. Units of one group (layout/unit_groups.h) become full and shards together: a use of one is a use
// of the group, and a group's gathers follow each other, one per member in ascending order, as do its frees. At any
// time the groups of the next uses are full, `limit` different ones at most. So a group is freed after a use when
// `limit` others are used before it is again, or never is, and stays full otherwise: in a chain the last `limit` groups
// between forward and backward, the first `limit` between two microbatches. Uses come in the order of the list,
// whatever schedule made it: under 1f1b forwards and backwards of different microbatches take turns in the window. What
// it made room for, the next group in the order of uses, is gathered at once and travels while earlier units compute; a
// group is never gathered right after its own free. When everything is kept, a group stays full until its last use, and
// each first use of a group lets one more be gathered. Two units that share a tied buffer each gather it; the buffer is
// full while either is.
#pragma once

#include <vector>

#include "orthant/schedule/actions.h"

namespace orthant {

struct GatherPolicy {
  std::vector<bool> sharded = {};            // per unit: its parameters are shards between uses
  int limit = 2;                             // groups full at one time, the one in use included; at least 1
  bool keep_gathered = false;                // from the first use of a step to the last
  std::vector<int> groups = {};              // per unit; empty: every unit alone
  std::vector<bool> reads_in_backward = {};  // per unit: its B and BW read its parameters; empty: all do
  std::vector<bool> reads_in_weights = {};   // per unit: its W reads its parameters; empty: none does
};

// The list with gathers and frees. Every gathered unit is freed by the end.
std::vector<Action> with_gathers(const std::vector<Action>& actions, const GatherPolicy& policy);

// InternalError unless every use of a sharded unit lies between its gather and its free, no unit is gathered twice or
// freed while it is not full, the members of a group are gathered and freed one after another, all are free at the end,
// and at most `limit` groups are full unless all are kept.
void check_gathers(const std::vector<Action>& actions, const GatherPolicy& policy);

}  // namespace orthant
