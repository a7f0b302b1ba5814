// Calls and payload bytes of context parallelism, per rank and step, as the counters of `comm` count them: see Note
// [Context traffic] in program/context_exchanged.h.
#pragma once

#include "orthant/plan/estimate/tensor_traffic.h"
#include "orthant/program/context_exchanged.h"

namespace orthant {

// At that coordinate of cp, of the units at settings.pp; sums of gradients over cp are those of data parallelism. Of
// the forward alone when the graph has no loss.
ContextExchanged context_traffic(const GraphSpec& graph, const TensorSettings& settings, int coordinate = 0);

}  // namespace orthant
