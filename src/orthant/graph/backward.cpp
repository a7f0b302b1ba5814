#include "orthant/graph/backward.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace orthant {

BackwardFacts backward_facts(const GraphSpec& graph) {
  BackwardFacts facts{std::vector<bool>(graph.units.size()), std::vector<bool>(graph.values.size())};
  std::map<std::string_view, std::size_t> value_index;
  for (std::size_t v = 0; v < graph.values.size(); ++v) value_index[graph.values[v].name] = v;
  std::set<std::string_view> trainable;
  const auto is_trainable = [&](std::string_view name) { return trainable.contains(name); };
  const auto needs_gradient = [&](std::string_view name) {
    const auto found = value_index.find(name);
    return found != value_index.end() && facts.values[found->second];
  };
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.trainable) trainable.insert(parameter.name);
    }
    facts.units[u] = std::ranges::any_of(unit.parameters, &ParameterSpec::trainable) ||
                     std::ranges::any_of(unit.borrowed, is_trainable) ||
                     std::ranges::any_of(unit.inputs, needs_gradient);
    for (const std::string& name : unit.outputs) {
      const std::size_t v = value_index.at(name);
      facts.values[v] = facts.units[u] && graph.values[v].differentiable;
    }
  }
  return facts;
}

void mark_gradients(GraphSpec& graph) {
  const auto facts = backward_facts(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) graph.values[v].differentiable = facts.values[v];
}

}  // namespace orthant
