#include "orthant/schedule/stage_edges.h"

#include <gtest/gtest.h>

#include "orthant/schedule/grid.h"
#include "schedule/graphs.h"

namespace orthant {
namespace stage_edges_test {

using Lists = std::vector<std::vector<int>>;

TEST(StageEdges, OfAChainLeadToTheNeighbours) {
  const StageEdges edges = chain_edges(3);
  EXPECT_EQ(edges.before, (Lists{{}, {0}, {1}}));
  EXPECT_EQ(edges.after, (Lists{{1}, {2}, {}}));
  EXPECT_EQ(edges.depths(), (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(chain_edges(0).num_stages(), 0);
}

TEST(StageEdges, OfAGraphFollowItsValues) {
  const GraphSpec graph = test::branches();
  const StageMap map =
      named_stages(graph, {{"text.embed", "text.layer"}, {"image.patch", "image.layer"}, {"fusion"}, {"head", "loss"}});
  const StageEdges edges = stage_edges(map, graph);
  EXPECT_EQ(edges.before, (Lists{{}, {}, {0, 1}, {0, 1, 2}}));
  EXPECT_EQ(edges.after, (Lists{{2, 3}, {2, 3}, {3}, {}}));
  EXPECT_EQ(edges.depths(), (std::vector<int>{2, 2, 1, 0}));
}

TEST(StageEdges, ValuesWithoutGradientLeadForwardsOnly) {
  const GraphSpec graph = test::GraphMaker("mask")
                              .unit("ids", {"ids"})
                              .output("mask", false)
                              .unit("a", {"mask"})
                              .loss("loss", {"a.out", "ids.out"})
                              .done();
  const StageEdges edges = stage_edges(named_stages(graph, {{"ids"}, {"a"}, {"loss"}}), graph);
  EXPECT_EQ(edges.before, (Lists{{}, {0}, {0, 1}}));
  EXPECT_EQ(edges.after, (Lists{{2}, {2}, {}}));
}

TEST(StageProgress, WaitsForEveryStageThatLeadsToOne) {
  const StageEdges edges{{{}, {}, {0, 1}}, {{2}, {2}, {}}};
  StageProgress progress(edges);
  const StageAction fusion{2, StageKind::F, 0};
  EXPECT_EQ(progress.awaited(fusion), (StageAction{0, StageKind::F, 0}));
  progress.finish({0, StageKind::F, 0});
  EXPECT_FALSE(progress.ready(fusion));
  EXPECT_EQ(progress.awaited(fusion), (StageAction{1, StageKind::F, 0}));
  progress.finish({1, StageKind::F, 0});
  EXPECT_TRUE(progress.ready(fusion));
}

TEST(Grid, BranchesRunAtTheSameTime) {
  const StageEdges edges{{{}, {}, {0, 1}}, {{2}, {2}, {}}};
  EXPECT_EQ(grid_text(parse_table("0F0 0BW0\n1F0 1BW0\n2F0 2BW0", "text"), edges),
            "time | 0    1    2    3\n"
            "pp 0 | 0F0  .    .    0BW0\n"
            "pp 1 | 1F0  .    .    1BW0\n"
            "pp 2 | .    2F0  2BW0 .\n");
}

}  // namespace stage_edges_test
}  // namespace orthant
