// `orthant train --mesh auto`: the planner picks the mesh for the ranks that a launcher started, or for as many as this
// machine has cores or GPUs for. Local.
//
// Note [Picked alike]: every rank picks by itself, before ranks have met: commands know their mesh before they connect,
// and so does a launcher that will start ranks. What it picks from is the same on every rank: the configuration, the
// size of the world, the ranks of a host, and what the machine has in all, not what is free this moment. On hosts that
// differ ranks may pick differently; then the comparison of configurations refuses the run.
#pragma once

#include <string>

#include "orthant/cli/config_options.h"
#include "orthant/launch/job.h"

namespace orthant::cli {

struct PickedRun {
  std::string text;         // what was picked, in one line
  double step_seconds = 0;  // predicted
};

// Writes the picked mesh and its settings into the options, as if they had been given.
// `hardware` as --hardware gives it; empty: not given. ConfigError for options that the planner would overrule, and
// when nothing fits.
PickedRun pick_run_mesh(ConfigOptions& options, RankOptions& ranks, const std::string& hardware,
                        const launch::Environment& environment);

}  // namespace orthant::cli
