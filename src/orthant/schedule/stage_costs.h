// How long the actions of a stage take, in any unit of time. The simulator adds them up, and stages that share a pp
// coordinate are put in order by them.
#pragma once

#include <vector>

#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

struct StageCost {
  double forward = 1;
  double inputs = 1;   // B
  double weights = 1;  // W; BW takes B + W
  double send = 0;  // what the stage writes, on its way to another pp coordinate; its gradient on the way back as well
  friend bool operator==(const StageCost&, const StageCost&) = default;

  double of(StageKind kind) const;
};

using StageCosts = std::vector<StageCost>;  // by stage

// The spec's FLOPs for one microbatch; a stage without any costs nothing. When no unit has any, every action takes one
// unit of time per unit of the graph. Sending is free.
StageCosts flop_costs(const StageMap& map, const GraphSpec& graph);

// ConfigError unless there is one cost per stage and all are finite and not negative.
void check_costs(const StageCosts& costs, int num_stages);

}  // namespace orthant
