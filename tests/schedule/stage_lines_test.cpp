#include "orthant/schedule/stage_lines.h"

#include <gtest/gtest.h>

namespace orthant {
namespace stage_lines_test {

TEST(StageLines, NameEveryStageItsPlaceAndItsUnits) {
  GraphSpec graph;
  graph.name = "chain";
  for (const char* name : {"embed", "layers.0", "layers.1", "layers.2", "head", "loss"}) {
    graph.units.push_back({.name = name, .kind = "any"});
  }
  Pipeline pipeline;
  pipeline.map = {{{0, 1}, {2, 3}, {4, 5}}, {0, 1, 0}};
  pipeline.table.actions.resize(2);
  pipeline.imbalance = 1.204;
  EXPECT_EQ(stage_lines(pipeline, graph),
            "pipeline of 3 stages on 2 pp coordinates, the heaviest at 1.20 of the mean\n"
            "  stage 0 on pp 0: embed, layers.0\n"
            "  stage 1 on pp 1: layers.1-2\n"
            "  stage 2 on pp 0: head, loss");
}

}  // namespace stage_lines_test
}  // namespace orthant
