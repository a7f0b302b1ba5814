// A run at a glance, in text: the ranks by coordinate, the stages, and a step's schedule.
#pragma once

#include <string>

#include "orthant/graph/spec.h"
#include "orthant/schedule/pipeline.h"
#include "orthant/train/run_config.h"

namespace orthant::cli {

// "Schedule 1f1b, 4 microbatches, a row for each pp coordinate:" and the grid of time by pp coordinate.
std::string schedule_picture(const RunConfig& config, const GraphSpec& spec, const Pipeline& pipeline);

// Empty for one rank. A schedule too wide for a terminal is left out.
std::string run_picture(const RunConfig& config, int ranks_per_host);

}  // namespace orthant::cli
