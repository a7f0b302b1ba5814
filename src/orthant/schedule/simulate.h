// Runs a table on paper: every pp coordinate takes its actions in order, each as soon as the pp coordinate is free and
// what it needs has arrived. Times of whole stages, so that schedules, cuts and costs can be compared without running
// anything; they are those of the lowered lists (tests/schedule/simulate_lists_test.cpp).
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
  std::vector<double> busy;              // per pp coordinate: time in actions
  std::vector<double> bubble_fractions;  // per pp coordinate: 1 - busy / makespan
  double bubble_fraction = 0;            // of all pp coordinates: 1 - busy / (pp degree x makespan)
  std::vector<int> peak_in_flight;       // per pp coordinate, as in grid.h
};

// The table must be valid; every pp coordinate that a stage appears on counts as its own. ConfigError when the pp
// coordinates wait for each other for ever, and for costs that are none.
Simulation simulate(const StageTable& table, const StageEdges& edges, const StageCosts& costs);

}  // namespace orthant
