#include "orthant/schedule/shared_ranks.h"

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

StageTable share_ranks(const StageTable& queues, const std::vector<int>& rank, const StageEdges& edges,
                       const StageCosts& costs) {
  check_costs(costs, queues.num_stages);
  const auto num_ranks = static_cast<std::size_t>(std::ranges::max(rank) + 1);
  StageTable table{queues.num_stages, queues.num_microbatches, std::vector<std::vector<StageAction>>(num_ranks)};
  StageClock clock(edges, costs, rank, queues.num_microbatches);
  std::vector<std::size_t> next(queues.ranks.size(), 0);
  std::vector<double> free_at(num_ranks, 0);
  // Of all next actions the one that can start first: nothing that is unknown yet could start before it.
  const auto choose = [&]() -> std::optional<Choice> {
    std::optional<Choice> best;
    for (std::size_t stage = 0; stage < next.size(); ++stage) {
      if (next[stage] == queues.ranks[stage].size()) continue;
      const StageAction& action = queues.ranks[stage][next[stage]];
      const auto ready = clock.ready(action);
      if (!ready) continue;
      const double start = std::max(*ready, free_at[static_cast<std::size_t>(rank[stage])]);
      const Choice choice{stage, preference(start, action)};
      if (!best || choice.preference < best->preference) best = choice;
    }
    return best;
  };
  while (const auto choice = choose()) {
    const auto home = static_cast<std::size_t>(rank[choice->stage]);
    const StageAction& action = queues.ranks[choice->stage][next[choice->stage]++];
    free_at[home] = std::get<0>(choice->preference) + costs[choice->stage].of(action.kind);
    clock.finish(action, free_at[home]);
    table.ranks[home].push_back(action);
  }
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    if (next[stage] == queues.ranks[stage].size()) continue;
    throw ConfigError(fmt::format("{} waits for ever\n{}", to_string(queues.ranks[stage][next[stage]]),
                                  marked_grid(queues, {{static_cast<int>(stage), static_cast<int>(next[stage])}})),
                      {.remedy = "order the actions so that every microbatch passes the stages"});
  }
  return table;
}

}  // namespace orthant
