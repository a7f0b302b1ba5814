#include "orthant/schedule/data_actions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/schedule/gathers.h"
#include "orthant/schedule/microbatch_reductions.h"

namespace orthant {
namespace {

GatherPolicy gather_policy(const GraphSpec& graph, const DataSettings& settings) {
  GatherPolicy policy{.sharded = {},
                      .limit = settings.policy.limit_all_gathers,
                      .keep_gathered = settings.policy.keep_gathered,
                      .groups = settings.unit_groups,
                      .reads_in_backward = {},
                      .reads_in_weights = {}};
  const auto backward = backward_facts(graph);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    policy.sharded.push_back(!unit.parameters.empty() || !unit.borrowed.empty());
    policy.reads_in_backward.push_back(backward.units[u] && unit.backward_reads_parameters);
    // A head that forgets its logits makes them again, also for the gradients of its weights.
    policy.reads_in_weights.push_back(backward.units[u] && unit.logits.has_value());
  }
  return policy;
}

// Gradients of a microbatch wait until all units of their group are done; none of them may run the next one before.
void check_groups_are_done_together(const std::vector<Action>& actions, const GraphSpec& graph,
                                    const DataSettings& settings) {
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  std::map<int, std::size_t> holders;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!buffers.held[u].empty()) ++holders[buffers.unit_groups[u]];
  }
  std::map<std::pair<int, int>, std::vector<int>> waiting;  // (unit group, microbatch) -> units
  const auto writes = [&](const Action& action, int held_by) {
    const auto& held = buffers.held[static_cast<std::size_t>(held_by)];
    const auto& used = buffers.used[static_cast<std::size_t>(action.unit)];
    return std::ranges::any_of(held, [&](int b) { return std::ranges::find(used, b) != used.end(); });
  };
  for (const Action& action : actions) {
    if (action.kind == ActionKind::reduce && action.microbatch >= 0) {
      const std::pair key(buffers.unit_groups[static_cast<std::size_t>(action.unit)], action.microbatch);
      waiting[key].push_back(action.unit);
      if (waiting[key].size() == holders[key.first]) waiting.erase(key);
    }
    if (action.kind != ActionKind::backward && action.kind != ActionKind::backward_weight) continue;
    for (const auto& [key, units] : waiting) {
      for (const int unit : units) {
        if (!writes(action, unit)) continue;
        throw ConfigError(
            fmt::format("parallel.units joins {} with units whose gradients of microbatch {} come later in this "
                        "schedule than its next microbatch",
                        graph.units[static_cast<std::size_t>(unit)].name, key.second),
            {.remedy = "use parallel.accumulate=full, or groups inside one stage"});
      }
    }
  }
}

}  // namespace

std::vector<Action> data_actions(const std::vector<Action>& actions, const GraphSpec& graph,
                                 const DataSettings& settings) {
  auto list = actions;
  if (settings.policy.accumulate_sharded) {
    list = with_microbatch_reductions(actions, graph);
    check_groups_are_done_together(list, graph, settings);
  }
  if (!settings.policy.shards_parameters()) return list;
  const auto policy = gather_policy(graph, settings);
  list = with_gathers(list, policy);
  check_gathers(list, policy);
  return list;
}

}  // namespace orthant
