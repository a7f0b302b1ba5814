#include "orthant/runtime/lanes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace orthant {
namespace {

// Units a, b, ... that read values named after the units which write them; others are batch fields.
GraphSpec graph_of(const std::vector<std::pair<std::string, std::vector<std::string>>>& units) {
  GraphSpec graph;
  for (const auto* field : {"ids", "labels", "numbers", "x"}) graph.batch_fields.push_back({.name = field});
  for (const auto& [name, inputs] : units) {
    UnitSpec unit;
    unit.name = name;
    unit.inputs = inputs;
    unit.outputs = {name};
    graph.units.push_back(unit);
    graph.values.push_back({.name = name});
  }
  return graph;
}

TEST(Lanes, ChainsStayInOne) {
  EXPECT_EQ(unit_lanes(graph_of({{"a", {"ids"}}, {"b", {"a"}}, {"c", {"b", "a"}}, {"loss", {"c", "labels"}}}), 4),
            (std::vector<int>{0, 0, 0, 0}));
}

TEST(Lanes, BranchesHaveTheirOwnAndMeetInTheFirst) {
  EXPECT_EQ(unit_lanes(graph_of({{"a1", {"ids"}},
                                 {"a2", {"a1"}},
                                 {"b1", {"ids"}},
                                 {"b2", {"b1"}},
                                 {"t", {"numbers"}},
                                 {"fusion", {"a2", "b2", "t"}},
                                 {"loss", {"fusion"}}}),
                       4),
            (std::vector<int>{0, 0, 1, 1, 2, 0, 0}));
  // Two that part from one.
  EXPECT_EQ(unit_lanes(
                graph_of({{"trunk", {"x"}}, {"left", {"trunk"}}, {"right", {"trunk"}}, {"sum", {"left", "right"}}}), 4),
            (std::vector<int>{0, 0, 1, 0}));
}

TEST(Lanes, AreAtMostSoMany) {
  for (const int lane :
       unit_lanes(graph_of({{"a", {"x"}}, {"b", {"x"}}, {"c", {"x"}}, {"d", {"x"}}, {"e", {"a", "b", "c", "d"}}}), 2)) {
    EXPECT_LT(lane, 2);
  }
}

TEST(Lanes, UsersOfOneParameterShareOne) {
  auto graph = graph_of({{"a", {"ids"}}, {"b", {"ids"}}, {"sum", {"a", "b"}}});
  graph.units[0].parameters.push_back({.name = "a.table", .shape = {4, 2}});
  EXPECT_EQ(unit_lanes(graph, 4), (std::vector<int>{0, 1, 0}));
  graph.units[1].borrowed = {"a.table"};
  EXPECT_EQ(unit_lanes(graph, 4), (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace orthant
