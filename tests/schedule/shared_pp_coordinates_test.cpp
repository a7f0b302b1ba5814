#include "orthant/schedule/shared_pp_coordinates.h"

#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/simulate.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"
#include "schedule/random_tables.h"

namespace orthant {
namespace shared_pp_coordinates_test {

using test::thrown_text;

TEST(SharePpCoordinates, RunsWhatCanStartFirstAndBackwardsBeforeForwards) {
  const StageTable queues = one_forward_one_backward(2, 2);
  EXPECT_EQ(to_text(share_pp_coordinates(queues, {0, 0}, chain_edges(2), StageCosts(2))),
            "0F0 1F0 1BW0 0F1 0BW0 1F1 1BW1 0BW1\n");
  EXPECT_EQ(share_pp_coordinates(queues, {0, 1}, chain_edges(2), StageCosts(2)), queues);
}

TEST(SharePpCoordinates, CostsDecideWhatIsReadyFirst) {
  // Two branches on pp 0 and 1, their sum on pp 1: it waits for the slower branch.
  const StageEdges edges{{{}, {}, {0, 1}}, {{2}, {2}, {}}};
  const StageTable queues = one_forward_one_backward(edges, 2);
  EXPECT_EQ(to_text(share_pp_coordinates(queues, {0, 1, 1}, edges, {{1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}})),
            "0F0 0F1 0BW0 0BW1\n1F0 2F0 2BW0 1F1 1BW0 2F1 2BW1 1BW1\n");
  EXPECT_EQ(to_text(share_pp_coordinates(queues, {0, 1, 1}, edges, {{4, 4, 4, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}})),
            "0F0 0F1 0BW0 0BW1\n1F0 1F1 2F0 2BW0 1BW0 2F1 2BW1 1BW1\n");
}

TEST(SharePpCoordinates, AnyGraphOnAnyPpCoordinatesIsValidAndKeepsTheOrderOfItsStages) {
  std::mt19937 random(21);
  for (int round = 0; round < 500; ++round) {
    const GraphSpec graph = test::random_graph(random);
    const StageMap map = test::random_stages(graph, random);
    const StageEdges edges = stage_edges(map, graph);
    const int microbatches = 1 + test::draw(random, 6);
    StageCosts costs;
    for (int s = 0; s < map.num_stages(); ++s) {
      const auto cost = [&] { return static_cast<double>(test::draw(random, 4)); };
      const double forward = cost();
      const double inputs = cost();
      costs.push_back({forward, inputs, cost(), 0});
    }
    for (const StageTable& queues : {gpipe(map.num_stages(), microbatches),
                                     one_forward_one_backward(edges, microbatches), zbh1(edges, microbatches)}) {
      const StageTable table = share_pp_coordinates(queues, map.pp_coordinates, edges, costs);
      EXPECT_NO_THROW(validate(table, map, graph)) << to_text(table);
      std::vector<std::vector<StageAction>> stages(map.units.size());
      for (const auto& actions : table.actions) {
        for (const StageAction& action : actions) stages[static_cast<std::size_t>(action.stage)].push_back(action);
      }
      EXPECT_EQ(stages, queues.actions);
      EXPECT_NO_THROW(simulate(table, edges, costs));
    }
  }
}

TEST(SharePpCoordinates, RefusesQueuesThatWaitForEver) {
  EXPECT_EQ(thrown_text([] {
              share_pp_coordinates(parse_table("0BW0 0F0\n1F0 1BW0", "text"), {0, 0}, chain_edges(2), StageCosts(2));
            }),
            "0BW0 waits for ever\n"
            "position | 0      1\n"
            "pp 0     | [0BW0]  0F0\n"
            "pp 1     |  1F0    1BW0\n"
            "order the actions so that every microbatch passes the stages");
}

TEST(FlopCosts, AreSumsOverTheUnitsOfAStage) {
  const GraphSpec graph = test::GraphMaker("costs")
                              .unit("a", {"ids"})
                              .flops(1, 2, 3)
                              .unit("b", {"a.out"})
                              .flops(10, 20, 30)
                              .loss("loss", {"b.out"})
                              .done();
  EXPECT_EQ(flop_costs({{{0, 1}, {2}}, {0, 1}}, graph), (StageCosts{{11, 22, 33, 0}, {0, 0, 0, 0}}));
  EXPECT_EQ(flop_costs({{{0, 1}, {2, 3, 4, 5}}, {0, 1}}, test::skips()), (StageCosts{{2, 2, 2, 0}, {4, 4, 4, 0}}));
}

}  // namespace shared_pp_coordinates_test
}  // namespace orthant
