// When the actions of stages can start: what a stage has finished is there at once on its own pp coordinate, and after
// the stage's sending time on another.
#pragma once

#include <optional>
#include <vector>

#include "orthant/schedule/stage_costs.h"
#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// A view: all it is given outlives it. `pp_coordinates` has one entry per stage.
class StageClock {
 public:
  StageClock(const StageEdges& edges, const StageCosts& costs, const std::vector<int>& pp_coordinates,
             int microbatches);

  // The moment when all that the action needs is on its pp coordinate; nothing while some of it has not been finished.
  std::optional<double> ready(const StageAction& action) const;

  // The action ran and ended then.
  void finish(const StageAction& action, double end);

 private:
  using Ends = std::vector<std::vector<double>>;  // by stage and microbatch; negative: not yet

  // Of `other`'s action, seen from `stage`; what travels is what `writer` wrote.
  double arrival(const Ends& ends, int other, int stage, int writer, int microbatch) const;

  const StageEdges& edges_;
  const StageCosts& costs_;
  const std::vector<int>& pp_coordinates_;
  Ends forward_;
  Ends backward_;  // B or BW
};

}  // namespace orthant
