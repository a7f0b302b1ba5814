// Which forwards of a list may make gradients: of a head that is the loss, too, when its whole backward is the next
// thing that happens to the unit. The gradient of its loss is known then, weights are added to in the order of
// backwards, and no reduction of the unit lies between. Pure: the executor and the planner agree on it.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/schedule/actions.h"

namespace orthant {

// Unit and microbatch of each.
using ForwardGradients = std::set<std::pair<int, int>>;

ForwardGradients gradients_in_forward(const std::vector<Action>& actions, const GraphSpec& graph);

}  // namespace orthant
