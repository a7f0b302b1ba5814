// Runs a table on paper: every rank takes its actions in order, each as soon as the rank is free and what it needs has
// arrived. Times of whole stages, so that schedules, cuts and costs can be compared without running anything.
#pragma once

#include <vector>

#include "orthant/schedule/stage_costs.h"
#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

struct TimedAction {
  StageAction action;
  double start = 0;
  double end = 0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> actions;
  double makespan = 0;
  std::vector<double> busy;              // per rank: time in actions
  std::vector<double> bubble_fractions;  // per rank: 1 - busy / makespan
  double bubble_fraction = 0;            // of all ranks: 1 - busy / (ranks x makespan)
  std::vector<int> peak_in_flight;       // per rank, as in grid.h
};

// The table must be valid; every rank that a stage appears on counts as its own. ConfigError when the ranks wait for
// each other for ever, and for costs that are none.
Simulation simulate(const StageTable& table, const StageEdges& edges, const StageCosts& costs);

}  // namespace orthant
