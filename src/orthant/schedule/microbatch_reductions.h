// Where gradients that are accumulated in shards leave their full buffers: after every microbatch, not once a step. A
// pass over a rank's list, beside that of gathers.h. Local.
#pragma once

#include <vector>

#include "orthant/schedule/actions.h"

namespace orthant {

// The list with a `reduce u` of microbatch m for every unit u that has a `reduce` and every microbatch m: right after
// the last weight gradient of m among the units on this list that use a trainable parameter which u holds (see Note
// [Reduce] in lowering.h). The `reduce u` of the step stays where it is, after the last of them. Several at one place
// come in descending unit order, as lowering has them.
std::vector<Action> with_microbatch_reductions(const std::vector<Action>& actions, const GraphSpec& graph);

}  // namespace orthant
