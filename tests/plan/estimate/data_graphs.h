// A chain with sizes that tell its units apart, and the list that a policy runs it by.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "orthant/schedule/data_actions.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/stages.h"
#include "schedule/graphs.h"

namespace orthant::test {

// embed 128, layers.0 and layers.1 64 each, head 256 elements (none of its own when tied), loss: 512 in all. Multiples
// of the padding on two shards.
inline GraphSpec sized_chain(bool tied = false) {
  GraphSpec graph = chain(2, tied);
  constexpr std::int64_t kSizes[] = {128, 64, 64, 256, 0};
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (ParameterSpec& parameter : graph.units[u].parameters) parameter.shape = {kSizes[u]};
  }
  return graph;
}

inline DataSettings settings_of(std::string_view mesh, int zero) {
  DataSettings settings;
  settings.mesh = Mesh::parse(mesh);
  settings.policy = effective_policy({.zero = zero}, settings.mesh);
  return settings;
}

// One stage, all units on this rank.
inline std::vector<Action> one_stage_actions(const GraphSpec& graph, const DataSettings& settings) {
  const auto lowered = lower(one_stage(settings.microbatches), even_stages(graph, 1), graph, 0);
  return data_actions(lowered, graph, settings);
}

inline void freeze_unit(GraphSpec& graph, std::string_view name) {
  for (ParameterSpec& parameter : graph.units[static_cast<std::size_t>(graph.unit_index(name))].parameters) {
    parameter.trainable = false;
  }
}

}  // namespace orthant::test
