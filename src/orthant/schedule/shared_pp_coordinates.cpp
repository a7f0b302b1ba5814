#include "orthant/schedule/shared_pp_coordinates.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "orthant/base/error.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/stage_clock.h"

namespace orthant {
namespace {

// What is taken first: when it can start, then what it is.
using Preference = std::tuple<double, int, int, int>;

Preference preference(double start, const StageAction& action) {
  const int kind = action.kind == StageKind::F ? 1 : action.kind == StageKind::W ? 2 : 0;
  return {start, kind, action.microbatch, -action.stage};
}

struct Choice {
  std::size_t stage = 0;
  Preference preference;
};

}  // namespace

StageTable share_pp_coordinates(const StageTable& queues, const std::vector<int>& pp_coordinates,
                                const StageEdges& edges, const StageCosts& costs) {
  check_costs(costs, queues.num_stages);
  const auto pp_degree = static_cast<std::size_t>(std::ranges::max(pp_coordinates) + 1);
  StageTable table{queues.num_stages, queues.num_microbatches, std::vector<std::vector<StageAction>>(pp_degree)};
  StageClock clock(edges, costs, pp_coordinates, queues.num_microbatches);
  std::vector<std::size_t> next(queues.actions.size(), 0);
  std::vector<double> free_at(pp_degree, 0);
  // Of all next actions the one that can start first: nothing that is unknown yet could start before it.
  const auto choose = [&]() -> std::optional<Choice> {
    std::optional<Choice> best;
    for (std::size_t stage = 0; stage < next.size(); ++stage) {
      if (next[stage] == queues.actions[stage].size()) continue;
      const StageAction& action = queues.actions[stage][next[stage]];
      const auto ready = clock.ready(action);
      if (!ready) continue;
      const double start = std::max(*ready, free_at[static_cast<std::size_t>(pp_coordinates[stage])]);
      const Choice choice{stage, preference(start, action)};
      if (!best || choice.preference < best->preference) best = choice;
    }
    return best;
  };
  while (const auto choice = choose()) {
    const auto home = static_cast<std::size_t>(pp_coordinates[choice->stage]);
    const StageAction& action = queues.actions[choice->stage][next[choice->stage]++];
    free_at[home] = std::get<0>(choice->preference) + costs[choice->stage].of(action.kind);
    clock.finish(action, free_at[home]);
    table.actions[home].push_back(action);
  }
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    if (next[stage] == queues.actions[stage].size()) continue;
    throw ConfigError(fmt::format("{} waits for ever\n{}", to_string(queues.actions[stage][next[stage]]),
                                  marked_grid(queues, {{static_cast<int>(stage), static_cast<int>(next[stage])}})),
                      {.remedy = "order the actions so that every microbatch passes the stages"});
  }
  return table;
}

}  // namespace orthant
