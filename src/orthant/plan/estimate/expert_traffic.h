// Calls and payload bytes of tokens that travel to their experts and back, per rank and step, as the counters of `comm`
// count them: the whole input of an all-to-all. Pure.
//
// Note [Expert traffic]: of a microbatch's tokens a rank has t, each taken by k experts, of H channels; its own experts
// take r rows of all tokens. Forward sends t k H to experts and r H back, and a count of every expert once; backward
// sends r H back from experts, r H again for the gradients of weights, and t k H to experts. Whatever tokens choose,
// what a rank sends to experts is the same; what comes back follows from the loads. Recompute `full` sends tokens and
// counts to experts once more.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/plan/estimate/tensor_traffic.h"

namespace orthant {

// The all-to-alls of an operation, or of several.
struct TokenExchanges {
  int to_experts = 0;
  int from_experts = 0;
  int counts = 0;
};
TokenExchanges token_exchanges(const Operation& operation);

// At settings.pp, of the experts' operations of units that lie there. `taken`: for every unit of the graph, the rows
// that the rank's experts take in a step; empty: as many as its tokens have, as when all experts take the same.
Exchanged::Entry expert_traffic(const GraphSpec& graph, const TensorSettings& settings,
                                const std::vector<std::int64_t>& taken = {});

}  // namespace orthant
