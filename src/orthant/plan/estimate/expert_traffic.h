// Calls and payload bytes of tokens that travel to their experts and back, per rank and step, as the counters of `comm`
// count them: the whole input of an all-to-all. Pure.
//
// Note [Expert traffic]: of a microbatch's tokens a rank has t, each taken by k experts, of H channels; its own experts
// take r rows of all tokens. Forward sends t k rows of H channels to experts with a weight for each, and r rows back,
// and a count of every expert once; backward sends t k rows of gradients to experts, and r rows back with the gradient
// of each one's weight. Whatever tokens choose, what a rank sends to experts is the same; what comes back follows from
// the loads. Recompute `full` sends rows, weights and answers once more, and no counts.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/plan/estimate/tensor_traffic.h"

namespace orthant {

// At settings.pp, of the experts' operations of units that lie there. `taken`: for every unit of the graph, the rows
// that the rank's experts take in a step; empty: as many as its tokens have, as when all experts take the same.
Exchanged::Entry expert_traffic(const GraphSpec& graph, const TensorSettings& settings,
                                const std::vector<std::int64_t>& taken = {});

}  // namespace orthant
