#include "orthant/schedule/stages.h"

#include <gtest/gtest.h>

#include <random>

#include "mesh/thrown_error.h"
#include "schedule/graphs.h"

namespace orthant {
namespace stages_test {

using test::GraphMaker;
using test::thrown_text;
using Units = std::vector<std::vector<int>>;

TEST(EvenStages, CutConsecutiveUnitsEvenly) {
  // embed and head cost nothing here; the layers decide.
  const GraphSpec graph = test::chain(4);
  EXPECT_EQ(even_stages(graph, 1).units, (Units{{0, 1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(even_stages(graph, 2).units, (Units{{0, 1, 2}, {3, 4, 5, 6}}));
  EXPECT_EQ(even_stages(graph, 4).units, (Units{{0, 1}, {2}, {3}, {4, 5, 6}}));
  EXPECT_EQ(even_stages(graph, 4).pp_coordinates, (std::vector<int>{0, 1, 2, 3}));
}

TEST(EvenStages, WeighForwardAndBothBackwards) {
  const auto graph = [](double forward, double inputs, double weights) {
    return GraphMaker("weighed")
        .unit("a", {"ids"})
        .flops(1, 1, 1)
        .unit("b", {"a.out"})
        .flops(1, 1, 1)
        .unit("c", {"b.out"})
        .flops(1, 1, 1)
        .unit("d", {"c.out"})
        .flops(forward, inputs, weights)
        .loss("loss", {"d.out"})
        .done();
  };
  EXPECT_EQ(even_stages(graph(1, 1, 1), 2).units, (Units{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(even_stages(graph(7, 1, 1), 2).units, (Units{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(even_stages(graph(1, 7, 1), 2).units, (Units{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(even_stages(graph(1, 1, 7), 2).units, (Units{{0, 1, 2}, {3, 4}}));
}

TEST(EvenStages, WithoutCostsCountUnits) {
  const GraphSpec graph = test::skips();
  EXPECT_EQ(even_stages(graph, 2).units, (Units{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(even_stages(graph, 3).units, (Units{{0, 1}, {2, 3}, {4, 5}}));
}

// Over every cut: no other has a lighter heaviest stage.
TEST(EvenStages, NoCutHasALighterHeaviestStage) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    GraphMaker maker("random");
    const int units = 2 + static_cast<int>(random() % 7);
    std::vector<double> weight;
    for (int u = 0; u < units; ++u) {
      weight.push_back(static_cast<double>(random() % 10));
      maker.unit("u" + std::to_string(u), {u == 0 ? "ids" : "u" + std::to_string(u - 1) + ".out"});
      maker.flops(weight.back(), 0, 0);
    }
    const GraphSpec graph = maker.loss("loss", {"u" + std::to_string(units - 1) + ".out"}).done();
    weight.push_back(0);
    const int stages = 1 + static_cast<int>(random() % static_cast<unsigned>(units));
    // Bit i of `cuts`: a stage begins at unit i + 1. The loss begins none.
    double best = 1e9;
    for (unsigned cuts = 0; cuts < 1U << (units - 1); ++cuts) {
      if (__builtin_popcount(cuts) != stages - 1) continue;
      double heaviest = 0;
      double sum = 0;
      for (int u = 0; u < units; ++u) {
        if (u > 0 && (cuts >> (u - 1) & 1) != 0) sum = 0;
        heaviest = std::max(heaviest, sum += weight[static_cast<std::size_t>(u)]);
      }
      best = std::min(best, heaviest);
    }
    const StageMap map = even_stages(graph, stages);
    EXPECT_NO_THROW(check_stages(map, graph));
    EXPECT_EQ(map.num_stages(), stages);
    double heaviest = 0;
    for (const auto& stage : map.units) {
      double sum = 0;
      for (const int unit : stage) sum += weight[static_cast<std::size_t>(unit)];
      heaviest = std::max(heaviest, sum);
    }
    EXPECT_EQ(heaviest, best) << "round " << round << ", " << stages << " stages";
  }
}

TEST(EvenStages, KeepALossWithItsHead) {
  // left (1) feeds loss.left (4), right (3) feeds loss.right (5): all between stays together.
  EXPECT_EQ(even_stages(test::fan_out(), 2).units, (Units{{0}, {1, 2, 3, 4, 5}}));
}

TEST(EvenStages, RefuseMoreStagesThanBlocks) {
  EXPECT_EQ(thrown_text([] { even_stages(test::chain(2), 5); }),
            "graph \"chain\" cannot be cut into 5 stages: its 5 units form 4 blocks (a loss stays with the unit that "
            "feeds it), and every stage needs one\nset 1 to 4 stages");
  EXPECT_EQ(thrown_text([] { even_stages(test::chain(2), 0); }),
            "graph \"chain\" cannot be cut into 0 stages: its 5 units form 4 blocks (a loss stays with the unit that "
            "feeds it), and every stage needs one\nset 1 to 4 stages");
}

TEST(NamedStages, TakeAnyCutThatRespectsTheEdges) {
  const GraphSpec graph = test::branches();
  const StageMap map = named_stages(
      graph, {{"image.layer", "image.patch"}, {"text.embed", "text.layer"}, {"loss", "fusion", "head"}}, {1, 0, 1});
  EXPECT_EQ(map.units, (Units{{2, 3}, {0, 1}, {4, 5, 6}}));
  EXPECT_EQ(map.pp_coordinates, (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(map.pp_degree(), 2);
  EXPECT_EQ(on_one_pp_coordinate(map).pp_coordinates, (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(named_stages(test::chain(0), {{"embed"}, {"head", "loss"}}).pp_coordinates, (std::vector<int>{0, 1}));
}

TEST(NamedStages, RefuseUnitsThatAreUnknownMissingOrNamedTwice) {
  const GraphSpec graph = test::chain(2);
  EXPECT_EQ(thrown_text([&] { named_stages(graph, {{"embed", "layer.0"}, {"layers.1", "head", "loss"}}); }),
            "stage 0 names \"layer.0\", which is no unit of graph \"chain\"\n"
            "did you mean \"layers.0\"? (one of embed, layers.0, layers.1, head, loss)");
  EXPECT_EQ(thrown_text([&] { named_stages(graph, {{"embed", "layers.0"}, {"layers.1"}}); }),
            "no stage holds head, loss\nname every unit of the graph in some stage");
  EXPECT_EQ(
      thrown_text([&] { named_stages(graph, {{"embed", "layers.0"}, {"layers.1", "layers.0", "head", "loss"}}); }),
      "unit \"layers.0\" is in stage 0 and in stage 1\nname every unit once");
  EXPECT_EQ(thrown_text([&] { named_stages(graph, {{"embed", "layers.0", "layers.1", "head", "loss"}, {}}); }),
            "stage 1 of 2 has no units\nname at least one unit per stage, or use fewer stages");
}

TEST(NamedStages, RefuseEdgesToEarlierStages) {
  EXPECT_EQ(thrown_text([] { named_stages(test::chain(2), {{"embed", "layers.1"}, {"layers.0"}, {"head", "loss"}}); }),
            "unit \"layers.1\" in stage 0 reads \"layers.0.out\", which unit \"layers.0\" writes in the later stage 1\n"
            "move \"layers.1\" to stage 1 or later, or \"layers.0\" to stage 0 or earlier");
}

TEST(NamedStages, RefusePpCoordinatesThatLeaveGaps) {
  const std::vector<std::vector<std::string>> names = {{"embed"}, {"layers.0", "layers.1"}, {"head", "loss"}};
  const GraphSpec graph = test::chain(2);
  EXPECT_EQ(thrown_text([&] { named_stages(graph, names, {0, 1}); }),
            "3 stages have 2 pp coordinates\ngive one pp coordinate per stage");
  EXPECT_EQ(thrown_text([&] { named_stages(graph, names, {0, 2, 0}); }),
            "pp coordinate 1 of 3 has no stage\nuse every pp coordinate from 0 up to the largest");
  EXPECT_EQ(thrown_text([&] { named_stages(graph, names, {0, -1, 0}); }),
            "stage 1 is on pp coordinate -1\ncount pp coordinates from 0");
}

TEST(StageMap, UnitsOfAStageMustAscend) {
  EXPECT_EQ(thrown_text<InternalError>([] { check_stages({{{1, 0}, {2}}, {0, 1}}, test::chain(0)); }),
            "the units of stage 0 are not ascending: 1, 0\n");
  EXPECT_EQ(thrown_text<InternalError>([] { check_stages({{{0, 1}, {3}}, {0, 1}}, test::chain(0)); }),
            "stage 1 names unit 3 of 3\n");
}

}  // namespace stages_test
}  // namespace orthant
