#include "orthant/schedule/graph_edges.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace orthant {
namespace {

void add_once(std::vector<int>& indices, int index) {
  if (std::ranges::find(indices, index) == indices.end()) indices.push_back(index);
}

}  // namespace

GraphEdges::GraphEdges(const GraphSpec& graph)
    : inputs(graph.units.size()),
      outputs(graph.units.size()),
      producer(graph.values.size(), -1),
      consumers(graph.values.size()) {
  std::map<std::string_view, std::size_t> value_index;
  for (std::size_t v = 0; v < graph.values.size(); ++v) value_index[graph.values[v].name] = v;
  std::map<std::string_view, std::size_t> parameter_index;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    const int index = static_cast<int>(u);
    for (const std::string& name : unit.outputs) {
      const std::size_t v = value_index.at(name);
      outputs[u].push_back(static_cast<int>(v));
      producer[v] = index;
    }
    for (const std::string& name : unit.inputs) {
      const auto found = value_index.find(name);
      if (found == value_index.end()) continue;
      add_once(inputs[u], static_cast<int>(found->second));
      add_once(consumers[found->second], index);
    }
    for (const ParameterSpec& parameter : unit.parameters) {
      if (!parameter.trainable) continue;
      parameter_index[parameter.name] = users.size();
      users.push_back({index});
    }
    for (const std::string& name : unit.borrowed) {
      const auto found = parameter_index.find(name);
      if (found != parameter_index.end()) add_once(users[found->second], index);
    }
  }
}

std::vector<ReducedUnit> reduced_units(const GraphEdges& edges, const std::vector<int>& pp_coordinate_of,
                                       int pp_coordinate) {
  std::map<int, std::set<int>> held;  // by the unit that holds
  for (const auto& users : edges.users) {
    int holder = -1;
    for (const int user : users) {
      if (pp_coordinate_of[static_cast<std::size_t>(user)] != pp_coordinate) continue;
      if (holder < 0) holder = user;
      held[holder].insert(user);
    }
  }
  std::vector<ReducedUnit> reduced;
  for (const auto& [unit, users] : held) reduced.push_back({unit, {users.begin(), users.end()}});
  return reduced;
}

}  // namespace orthant
