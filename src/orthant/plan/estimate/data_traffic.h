// Calls and payload bytes of data parallelism, per rank and step, as the counters of `comm` count them: the tensor of
// an all-reduce, the gathered output, the whole input of a reduce-scatter; a call over a list of tensors is one call.
//
// Note [Data traffic]: N is the elements of all flat buffers, padding included, c and g the bytes of an element in the
// compute dtype and of a gradient that travels, d the degree of fsdp, R whether there are replicas to sum over, M the
// microbatches. For one stage, nothing frozen or tied:
//   zero 0   sum R N g
//   zero 1   scatter N g, sum R N g/d, gather N c after the update
//   zero 2   the same; with gradients accumulated in shards scatter M N g
//   zero 3   likewise, but gather M (2 N - L - E) c - (M - 1) F c instead: of the groups with parameters, L the last k
//            (limit_all_gathers), which stay full between forward and backward, E those before them whose backward
//            reads none, F those of the first k whose backward reads some, which stay full between microbatches;
//            with k groups or fewer, or all kept, N c
// Frozen buffers are gathered with zero 3 only and never summed.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/layout/data_views.h"
#include "orthant/program/exchanged.h"
#include "orthant/schedule/actions.h"

namespace orthant {

struct DataTraffic {
  using Entry = CountedCalls;
  Entry gather = {};   // all_gather over fsdp
  Entry scatter = {};  // reduce_scatter over fsdp
  Entry sum = {};      // all_reduce over copy_axes()
  friend bool operator==(const DataTraffic&, const DataTraffic&) = default;
};

// Of the list that runs: that of data_actions(). The first: of all but experts on a mesh of their own.
DataTraffic data_traffic(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions);
DataTraffic data_traffic(const DataView& view, const std::vector<Action>& actions);

}  // namespace orthant
