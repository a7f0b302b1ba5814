#include "orthant/plan/data_settings.h"

#include <utility>

#include "orthant/graph/backward.h"
#include "orthant/schedule/gathers.h"
#include "orthant/schedule/reductions.h"

namespace orthant {
namespace {

GatherPolicy gather_policy(const GraphSpec& graph, const DataSettings& settings) {
  GatherPolicy policy{.sharded = {},
                      .limit = settings.policy.limit_all_gathers,
                      .keep_gathered = settings.policy.keep_gathered,
                      .groups = settings.groups,
                      .reads_in_backward = {}};
  const auto backward = backward_facts(graph);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    policy.sharded.push_back(!unit.parameters.empty() || !unit.borrowed.empty());
    policy.reads_in_backward.push_back(backward.units[u] && unit.backward_reads_parameters);
  }
  return policy;
}

}  // namespace

std::int64_t DataBuffers::elements(const std::vector<int>& buffers) const {
  std::int64_t sum = 0;
  for (const int b : buffers) sum += (*this)[b].size;
  return sum;
}

DataBuffers data_buffers(const GraphSpec& graph, const DataSettings& settings) {
  DataBuffers found;
  found.used.resize(graph.units.size());
  found.held.resize(graph.units.size());
  found.groups = settings.groups;
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    if (settings.groups.empty()) found.groups.push_back(u);
    for (FlatBuffer& buffer : flat_buffers(graph, u, settings.mesh, {})) {
      const int b = static_cast<int>(found.all.size());
      for (const int user : buffer.users) found.used[static_cast<std::size_t>(user)].push_back(b);
      if (buffer.trainable) found.held[static_cast<std::size_t>(u)].push_back(b);
      found.all.push_back(std::move(buffer));
    }
  }
  return found;
}

std::vector<Action> data_actions(const std::vector<Action>& actions, const GraphSpec& graph,
                                 const DataSettings& settings) {
  auto list = settings.policy.accumulate_sharded ? with_microbatch_reductions(actions, graph) : actions;
  if (!settings.policy.shards_parameters()) return list;
  const auto policy = gather_policy(graph, settings);
  list = with_gathers(list, policy);
  check_gathers(list, policy);
  return list;
}

}  // namespace orthant
