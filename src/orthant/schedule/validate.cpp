#include "orthant/schedule/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/list_run.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/table_rules.h"

namespace orthant {
namespace {

// The lines of a list around one action.
std::string excerpt(const std::vector<Action>& actions, const GraphSpec& graph, ActionPlace place) {
  constexpr int kAround = 3;
  const int end = std::min(place.position + kAround + 1, static_cast<int>(actions.size()));
  std::string text = fmt::format("pp {}:", place.pp_coordinate);
  for (int i = std::max(place.position - kAround, 0); i < end; ++i) {
    text += fmt::format("\n{} {:>5}  {}", i == place.position ? '>' : ' ', i,
                        to_string(actions[static_cast<std::size_t>(i)], graph));
  }
  return text;
}

// A unit "stage s" per stage, each reading what the one before wrote.
GraphSpec chain_graph(int stages) {
  GraphSpec graph;
  graph.name = "chain";
  for (int s = 0; s < stages; ++s) {
    UnitSpec& unit = graph.units.emplace_back();
    unit.name = fmt::format("stage {}", s);
    unit.kind = "stage";
    if (s > 0) unit.inputs = {graph.values.back().name};
    unit.outputs = {fmt::format("output {}", s)};
    graph.values.emplace_back().name = unit.outputs[0];
  }
  return graph;
}

}  // namespace

void validate(const StageTable& table, const StageMap& map, const GraphSpec& graph,
              const std::vector<int>& max_in_flight) {
  check_stages(map, graph);
  check_table(table, map.pp_coordinates);
  if (!max_in_flight.empty()) check_in_flight(table, max_in_flight);
  std::vector<std::vector<Action>> lists;
  std::vector<std::vector<int>> origins;
  for (int pp_coordinate = 0; pp_coordinate < map.pp_degree(); ++pp_coordinate) {
    LoweredList lowered = lower_with_origins(table, map, graph, pp_coordinate);
    lists.push_back(std::move(lowered.actions));
    origins.push_back(std::move(lowered.origins));
  }
  run_lists(lists, graph, table.num_microbatches, [&](std::vector<ActionPlace> places) {
    for (ActionPlace& place : places) {
      place.position = origins[static_cast<std::size_t>(place.pp_coordinate)][static_cast<std::size_t>(place.position)];
    }
    return marked_grid(table, places);
  });
}

void validate_chain(const StageTable& table, const std::vector<int>& pp_coordinates,
                    const std::vector<int>& max_in_flight) {
  StageMap map;
  map.pp_coordinates = pp_coordinates;
  for (std::size_t s = 0; s < pp_coordinates.size(); ++s) map.units.push_back({static_cast<int>(s)});
  validate(table, map, chain_graph(map.num_stages()), max_in_flight);
}

void validate_actions(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches) {
  if (microbatches < 1) {
    throw ConfigError(fmt::format("lists for {} microbatches", microbatches), {.remedy = "set at least one"});
  }
  run_lists(lists, graph, microbatches, [&](const std::vector<ActionPlace>& places) {
    std::string text;
    for (const ActionPlace& place : places) {
      if (!text.empty()) text += '\n';
      text += excerpt(lists[static_cast<std::size_t>(place.pp_coordinate)], graph, place);
    }
    return text;
  });
}

}  // namespace orthant
