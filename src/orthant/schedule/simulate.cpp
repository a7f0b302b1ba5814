#include "orthant/schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/stage_clock.h"

namespace orthant {
namespace {

// Times of all actions; pp coordinates take turns until none can go on.
std::vector<std::vector<TimedAction>> run(const StageTable& table, const StageCosts& costs, StageClock& clock) {
  std::vector<std::vector<TimedAction>> actions(table.actions.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t pp_coordinate = 0; pp_coordinate < actions.size(); ++pp_coordinate) {
      auto& done = actions[pp_coordinate];
      while (done.size() < table.actions[pp_coordinate].size()) {
        const StageAction& action = table.actions[pp_coordinate][done.size()];
        const auto ready = clock.ready(action);
        if (!ready) break;
        const double start = std::max(*ready, done.empty() ? 0 : done.back().end);
        const double end = start + costs[static_cast<std::size_t>(action.stage)].of(action.kind);
        clock.finish(action, end);
        done.push_back({action, start, end});
        moved = true;
      }
    }
  }
  return actions;
}

void check_finished(const StageTable& table, const std::vector<std::vector<TimedAction>>& actions) {
  for (std::size_t pp_coordinate = 0; pp_coordinate < actions.size(); ++pp_coordinate) {
    if (actions[pp_coordinate].size() == table.actions[pp_coordinate].size()) continue;
    const int position = static_cast<int>(actions[pp_coordinate].size());
    throw ConfigError(fmt::format("{} on pp {} waits for ever\n{}",
                                  to_string(table.actions[pp_coordinate][actions[pp_coordinate].size()]), pp_coordinate,
                                  marked_grid(table, {{static_cast<int>(pp_coordinate), position}})),
                      {.remedy = "simulate a table that validate() accepts"});
  }
}

}  // namespace

Simulation simulate(const StageTable& table, const StageEdges& edges, const StageCosts& costs) {
  check_costs(costs, table.num_stages);
  if (edges.num_stages() != table.num_stages) {
    throw InternalError(fmt::format("{} stages have the edges of {}", table.num_stages, edges.num_stages()));
  }
  const std::vector<int> pp_coordinates = stage_pp_coordinates(table);
  StageClock clock(edges, costs, pp_coordinates, table.num_microbatches);
  Simulation result;
  result.actions = run(table, costs, clock);
  check_finished(table, result.actions);
  for (const auto& actions : result.actions) {
    double busy = 0;
    for (const TimedAction& timed : actions) busy += timed.end - timed.start;
    result.busy.push_back(busy);
    if (!actions.empty()) result.makespan = std::max(result.makespan, actions.back().end);
  }
  const auto bubble = [&](double busy) { return result.makespan > 0 ? 1 - busy / result.makespan : 0; };
  for (const double busy : result.busy) result.bubble_fractions.push_back(bubble(busy));
  const double total = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.bubble_fraction = bubble(total / static_cast<double>(std::max<std::size_t>(result.busy.size(), 1)));
  result.peak_in_flight = peak_in_flight(table);
  return result;
}

}  // namespace orthant
