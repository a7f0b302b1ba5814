// The automatic cut of a model into stages: runs of consecutive units, so even in cost as they can be and within a
// bound on memory. Exact: dynamic programming over all cuts of the units' order.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/schedule/stages.h"

namespace orthant {

// What a rank may hold, and what units need there: state (parameters, gradients, optimizer; a borrowed parameter counts
// where the caller puts it) once, activations once per microbatch in flight. Stages that share a pp coordinate have
// equal shares of the bytes.
struct MemoryBound {
  std::int64_t rank_bytes = 0;                 // 0: no bound
  std::vector<std::int64_t> state_bytes = {};  // per unit
  std::vector<std::int64_t> kept_bytes = {};   // per unit and microbatch; empty: none
  std::vector<int> in_flight = {};             // per stage: stage_peaks() in grid.h; empty: one
};

// What breaks ties between cuts that take the same time.
struct CutSizes {
  explicit CutSizes(const GraphSpec& graph);

  // A value that units besides its writer read.
  struct Edge {
    int producer = -1;
    std::vector<int> consumers;  // ascending
    std::int64_t bytes = 0;      // of the value, and of its gradient where it has one
  };
  std::vector<std::int64_t> held;  // per unit: elements of the parameters that it owns or borrows
  std::vector<Edge> edges;
};

struct SplitOptions {
  std::vector<double> unit_costs = {};   // per unit, F + B + W, e.g. measured seconds; empty: the spec's FLOPs
  std::vector<int> pp_coordinates = {};  // per stage: pp coordinate; empty: stage s on pp s
  MemoryBound memory = {};
  const CutSizes* sizes = nullptr;  // nothing: of the graph
};

struct StageSplit {
  StageMap map;
  std::vector<double> costs;               // per stage
  std::vector<std::int64_t> memory_bytes;  // per stage; zeros without a bound
  double imbalance = 1;                    // the heaviest stage over the mean: 1 when even
};

// How many stages the automatic cut can make: units that may stand alone, since a loss stays with the last unit that
// feeds it.
int most_stages(const GraphSpec& graph);

// The heaviest stage is as light as it can be within the bound; among such cuts the rest is as even in cost as it can
// be. Cuts that are equal in both (to a millionth of a stage) take the same time: the best of them has the least memory
// on its fullest rank (by MemoryBound where it says so, else by parameters), then receives the fewest bytes from other
// stages, then has the most even numbers of units. The same on every rank: nothing but the arguments counts. A loss
// stays with the last unit that feeds it. ConfigError when there are fewer units than stages (see most_stages()), and
// when no cut keeps to the bound: it names the stage that does not fit in the cut that comes nearest.
StageSplit split_stages(const GraphSpec& graph, int stages, const SplitOptions& options = {});

}  // namespace orthant
