// Runs lowered lists without computing anything: which values and gradients are where, with buffered sends and blocking
// receives. The order in which pp coordinates take turns does not matter, since channels are queues and nobody else's
// state is read: a run that ends, ends in every order.
#pragma once

#include <vector>

#include "orthant/schedule/list_places.h"

namespace orthant {

// Returns when the lists keep the rules of validate_actions(); ConfigError otherwise.
void run_lists(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches,
               const ShowPlaces& show);

}  // namespace orthant
