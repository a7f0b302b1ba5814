// Random schedules of random graphs, valid by construction: named ones on even cuts, and tables that are drawn.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/shared_pp_coordinates.h"
#include "schedule/graphs.h"
#include "schedule/random_tables.h"

namespace orthant::test {

struct Case {
  GraphSpec graph;
  StageMap map;
  StageTable table;
};

inline std::vector<std::vector<Action>> lower_all(const Case& c) {
  std::vector<std::vector<Action>> lists;
  for (int pp_coordinate = 0; pp_coordinate < static_cast<int>(c.table.actions.size()); ++pp_coordinate) {
    lists.push_back(lower(c.table, c.map, c.graph, pp_coordinate));
  }
  return lists;
}

// The error's text; empty when the schedule is found valid.
template <class Check>
std::string verdict(const Check& check) {
  try {
    check();
    return "";
  } catch (const ConfigError& error) {
    return error.message();
  }
}

inline std::string describe(const Case& c) {
  std::string text = to_text(c.table);
  for (int s = 0; s < c.map.num_stages(); ++s) {
    text += fmt::format("stage {} on pp {}:", s, c.map.pp_coordinates[static_cast<std::size_t>(s)]);
    for (const int unit : c.map.units[static_cast<std::size_t>(s)]) {
      text += " " + c.graph.units[static_cast<std::size_t>(unit)].name;
    }
    text += "\n";
  }
  return text;
}

inline GraphSpec some_graph(std::mt19937& random) {
  const int kind = draw(random, 7);
  if (kind == 0) return chain(3, true);
  if (kind == 1) return chain(6);
  if (kind == 2) return fan_out();
  if (kind == 3) return branches();
  if (kind == 4) return skips();
  return random_graph(random);
}

// A named schedule on an even cut, where the graph has units enough.
inline Case named_case(std::mt19937& random, int microbatches) {
  Case c;
  c.graph = some_graph(random);
  const std::string& name = schedule_names()[static_cast<std::size_t>(draw(random, 5))];
  const int stages_per_pp = virtual_stages(name);
  int stages = stages_per_pp * (1 + draw(random, 4));
  int blocks = 0;
  for (; verdict([&] { even_stages(c.graph, blocks + 1); }).empty();) ++blocks;
  stages = std::min(stages, blocks / stages_per_pp * stages_per_pp);
  if (stages == 0) return named_case(random, microbatches);
  c.map = even_stages(c.graph, stages);
  c.map.pp_coordinates = schedule_placement(name, stages / stages_per_pp, stages_per_pp);
  c.table = draw(random, 6) == 0 ? make_forward_schedule(c.map, c.graph, microbatches)
                                 : make_schedule(name, c.map, c.graph, microbatches);
  if (draw(random, 4) == 0) {
    c.table = on_one_pp_coordinate(c.table, stage_edges(c.map, c.graph));
    c.map = on_one_pp_coordinate(c.map);
  }
  return c;
}

inline Case random_case(std::mt19937& random) {
  const int microbatches = 1 + draw(random, 4);
  const int kind = draw(random, 9);
  if (kind < 4) return named_case(random, microbatches);
  Case c;
  c.graph = some_graph(random);
  c.map = random_stages(c.graph, random);
  c.table = kind == 4   ? make_schedule("1f1b", c.map, c.graph, microbatches)
            : kind == 5 ? make_schedule("zbh1", c.map, c.graph, microbatches)
                        : TableDraw(c.graph, c.map, microbatches, draw(random, 101), random).table();
  return c;
}

}  // namespace orthant::test
