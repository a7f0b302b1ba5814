// What a backward pass touches: which units run in it and which values get a gradient. Follows from the spec alone, so
// that the executor, the schedule and the planner agree on it. Local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct BackwardFacts {
  std::vector<bool> units;   // per unit: it owns or borrows a trainable parameter, or an input needs a gradient
  std::vector<bool> values;  // per value: it is differentiable and its writer takes part
};

// Of a checked graph.
BackwardFacts backward_facts(const GraphSpec& graph);

// Values that get no gradient, since all that feeds them is frozen, become not differentiable: nobody sends one then.
void mark_gradients(GraphSpec& graph);

}  // namespace orthant
