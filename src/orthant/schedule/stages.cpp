#include "orthant/schedule/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/schedule/graph_edges.h"
#include "orthant/schedule/stage_split.h"

namespace orthant {
namespace {

std::vector<int> stage_of_units(const StageMap& map, const GraphSpec& graph) {
  std::vector<int> stage_of(graph.units.size(), -1);
  for (int s = 0; s < map.num_stages(); ++s) {
    for (const int unit : map.units[static_cast<std::size_t>(s)]) {
      if (unit < 0 || unit >= static_cast<int>(graph.units.size())) {
        throw InternalError(fmt::format("stage {} names unit {} of {}", s, unit, graph.units.size()));
      }
      int& stage = stage_of[static_cast<std::size_t>(unit)];
      if (stage >= 0) {
        throw ConfigError(fmt::format("unit \"{}\" is in stage {} and in stage {}",
                                      graph.units[static_cast<std::size_t>(unit)].name, stage, s),
                          {.remedy = "name every unit once"});
      }
      stage = s;
    }
  }
  std::vector<std::string> missing;
  for (std::size_t u = 0; u < stage_of.size(); ++u) {
    if (stage_of[u] < 0) missing.push_back(graph.units[u].name);
  }
  if (!missing.empty()) {
    throw ConfigError(fmt::format("no stage holds {}", fmt::join(missing, ", ")),
                      {.remedy = "name every unit of the graph in some stage"});
  }
  return stage_of;
}

void check_edges(const GraphSpec& graph, const std::vector<int>& stage_of) {
  const GraphEdges edges(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto producer = static_cast<std::size_t>(edges.producer[v]);
    for (const int unit : edges.consumers[v]) {
      const auto consumer = static_cast<std::size_t>(unit);
      if (stage_of[producer] <= stage_of[consumer]) continue;
      throw ConfigError(
          fmt::format("unit \"{}\" in stage {} reads \"{}\", which unit \"{}\" writes in the later stage {}",
                      graph.units[consumer].name, stage_of[consumer], graph.values[v].name, graph.units[producer].name,
                      stage_of[producer]),
          {.remedy = fmt::format("move \"{}\" to stage {} or later, or \"{}\" to stage {} or earlier",
                                 graph.units[consumer].name, stage_of[producer], graph.units[producer].name,
                                 stage_of[consumer])});
    }
  }
}

void check_pp_coordinates(const StageMap& map) {
  if (map.pp_coordinates.size() != map.units.size()) {
    throw ConfigError(fmt::format("{} stages have {} pp coordinates", map.units.size(), map.pp_coordinates.size()),
                      {.remedy = "give one pp coordinate per stage"});
  }
  for (int pp_coordinate = 0; pp_coordinate < map.pp_degree(); ++pp_coordinate) {
    if (std::ranges::find(map.pp_coordinates, pp_coordinate) == map.pp_coordinates.end()) {
      throw ConfigError(fmt::format("pp coordinate {} of {} has no stage", pp_coordinate, map.pp_degree()),
                        {.remedy = "use every pp coordinate from 0 up to the largest"});
    }
  }
  for (std::size_t s = 0; s < map.pp_coordinates.size(); ++s) {
    if (map.pp_coordinates[s] < 0) {
      throw ConfigError(fmt::format("stage {} is on pp coordinate {}", s, map.pp_coordinates[s]),
                        {.remedy = "count pp coordinates from 0"});
    }
  }
}

}  // namespace

int StageMap::pp_degree() const {
  return pp_coordinates.empty() ? 0 : *std::ranges::max_element(pp_coordinates) + 1;
}

StageMap even_stages(const GraphSpec& graph, int stages) {
  return split_stages(graph, stages).map;
}

StageMap named_stages(const GraphSpec& graph, const std::vector<std::vector<std::string>>& names,
                      const std::vector<int>& pp_coordinates) {
  std::vector<std::string> known;
  for (const UnitSpec& unit : graph.units) known.push_back(unit.name);
  StageMap map;
  map.pp_coordinates = pp_coordinates;
  for (std::size_t s = 0; s < names.size(); ++s) {
    auto& units = map.units.emplace_back();
    for (const std::string& name : names[s]) {
      const auto found = std::ranges::find(known, name);
      if (found == known.end()) {
        throw ConfigError(fmt::format("stage {} names \"{}\", which is no unit of graph \"{}\"", s, name, graph.name),
                          {.remedy = did_you_mean(name, known)});
      }
      units.push_back(static_cast<int>(found - known.begin()));
    }
    std::ranges::sort(units);
    if (pp_coordinates.empty()) map.pp_coordinates.push_back(static_cast<int>(s));
  }
  check_stages(map, graph);
  return map;
}

StageMap on_one_pp_coordinate(StageMap map) {
  std::ranges::fill(map.pp_coordinates, 0);
  return map;
}

void check_stages(const StageMap& map, const GraphSpec& graph) {
  check_pp_coordinates(map);
  for (std::size_t s = 0; s < map.units.size(); ++s) {
    if (map.units[s].empty()) {
      throw ConfigError(fmt::format("stage {} of {} has no units", s, map.units.size()),
                        {.remedy = "name at least one unit per stage, or use fewer stages"});
    }
    if (!std::ranges::is_sorted(map.units[s])) {
      throw InternalError(fmt::format("the units of stage {} are not ascending: {}", s, fmt::join(map.units[s], ", ")));
    }
  }
  check_edges(graph, stage_of_units(map, graph));
}

}  // namespace orthant
