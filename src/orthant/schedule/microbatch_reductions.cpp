#include "orthant/schedule/microbatch_reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

bool makes_weight_gradients(const Action& action) {
  return action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
}

// The units that the list reduces, and whose weight gradients each of them waits for.
std::vector<ReducedUnit> reduced_on(const std::vector<Action>& actions, const GraphSpec& graph) {
  std::vector<int> pp_coordinate_of(graph.units.size(), -1);
  std::set<int> named;
  for (const Action& action : actions) {
    if (makes_weight_gradients(action)) pp_coordinate_of.at(static_cast<std::size_t>(action.unit)) = 0;
    if (action.kind == ActionKind::reduce) named.insert(action.unit);
  }
  auto reduced = reduced_units(GraphEdges(graph), pp_coordinate_of, 0);
  std::erase_if(reduced, [&](const ReducedUnit& one) { return !named.contains(one.unit); });
  return reduced;
}

}  // namespace

std::vector<Action> with_microbatch_reductions(const std::vector<Action>& actions, const GraphSpec& graph) {
  const auto reduced = reduced_on(actions, graph);
  std::vector<std::map<int, std::size_t>> last(reduced.size());  // per reduced unit: microbatch -> position
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!makes_weight_gradients(actions[i])) continue;
    for (std::size_t r = 0; r < reduced.size(); ++r) {
      if (std::ranges::binary_search(reduced[r].users, actions[i].unit)) last[r][actions[i].microbatch] = i;
    }
  }
  std::vector<std::vector<Action>> after(actions.size());
  for (std::size_t r = reduced.size(); r-- > 0;) {
    for (const auto& [microbatch, position] : last[r]) {
      after[position].push_back({.kind = ActionKind::reduce, .unit = reduced[r].unit, .microbatch = microbatch});
    }
  }
  std::vector<Action> list;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    list.push_back(actions[i]);
    list.insert(list.end(), after[i].begin(), after[i].end());
  }
  return list;
}

}  // namespace orthant
