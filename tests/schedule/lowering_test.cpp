#include "orthant/schedule/lowering.h"

#include <gtest/gtest.h>

#include "orthant/schedule/generators.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"

namespace orthant {
namespace lowering_test {

using Lines = std::vector<std::string>;

// The list of a pp coordinate as text, of a schedule that must be valid.
Lines lowered(const StageTable& table, const StageMap& map, const GraphSpec& graph, int pp_coordinate) {
  validate(table, map, graph);
  Lines lines;
  for (const Action& action : lower(table, map, graph, pp_coordinate)) lines.push_back(to_string(action, graph));
  return lines;
}

// Every unit a stage, stages in unit order on the given pp coordinates.
StageMap unit_stages(const GraphSpec& graph, std::vector<int> pp_coordinates) {
  StageMap map;
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) map.units.push_back({u});
  map.pp_coordinates = std::move(pp_coordinates);
  return map;
}

Lines only(const Lines& lines, std::string_view begin) {
  Lines found;
  for (const std::string& line : lines) {
    if (line.starts_with(begin)) found.push_back(line);
  }
  return found;
}

TEST(Lowering, OneStageRunsUnitsUpAndDownAndReducesEachOnce) {
  const GraphSpec graph = test::chain(1);
  EXPECT_EQ(lowered(one_stage(2), even_stages(graph, 1), graph, 0),
            (Lines{"F embed m0", "F layers.0 m0", "F head m0", "F loss m0",                         //
                   "BW loss m0", "BW head m0", "BW layers.0 m0", "BW embed m0",                     //
                   "F embed m1", "F layers.0 m1", "F head m1", "F loss m1",                         //
                   "BW loss m1", "BW head m1", "reduce head", "BW layers.0 m1", "reduce layers.0",  //
                   "BW embed m1", "reduce embed"}));
}

TEST(Lowering, EdgesBetweenPpCoordinatesCarryValuesUpAndGradientsDown) {
  const GraphSpec graph = test::chain(1);
  const StageMap map = named_stages(graph, {{"embed", "layers.0"}, {"head", "loss"}});
  EXPECT_EQ(lowered(gpipe(2, 1), map, graph, 0),
            (Lines{"F embed m0", "F layers.0 m0", "send layers.0.out m0 -> 1",
                   "receive_gradient layers.0.out of head m0 <- 1", "BW layers.0 m0", "reduce layers.0", "BW embed m0",
                   "reduce embed"}));
  EXPECT_EQ(lowered(gpipe(2, 1), map, graph, 1),
            (Lines{"receive layers.0.out m0 <- 0", "F head m0", "F loss m0", "BW loss m0", "BW head m0",
                   "send_gradient layers.0.out of head m0 -> 0", "reduce head"}));
}

TEST(Lowering, MergedOntoOnePpCoordinateNothingTravels) {
  const GraphSpec graph = test::chain(0);
  const StageMap map = on_one_pp_coordinate(even_stages(graph, 2));
  EXPECT_EQ(lowered(on_one_pp_coordinate(gpipe(2, 1)), map, graph, 0),
            (Lines{"F embed m0", "F head m0", "F loss m0", "BW loss m0", "BW head m0", "reduce head", "BW embed m0",
                   "reduce embed"}));
}

TEST(Lowering, SplitBackwardsSendAfterBAndReduceAfterTheLastW) {
  const GraphSpec graph = test::chain(0);
  const StageMap map = even_stages(graph, 2);
  const StageTable table = parse_table("0F0 0F1 0B0 0W0 0BW1\n1F0 1B0 1F1 1B1 1W0 1W1", "text");
  EXPECT_EQ(lowered(table, map, graph, 1),
            (Lines{"receive embed.out m0 <- 0", "F head m0", "F loss m0", "B loss m0", "B head m0",
                   "send_gradient embed.out of head m0 -> 0", "receive embed.out m1 <- 0", "F head m1", "F loss m1",
                   "B loss m1", "B head m1", "send_gradient embed.out of head m1 -> 0", "W loss m0", "W head m0",
                   "W loss m1", "W head m1", "reduce head"}));
  EXPECT_EQ(lowered(table, map, graph, 0),
            (Lines{"F embed m0", "send embed.out m0 -> 1", "F embed m1", "send embed.out m1 -> 1",
                   "receive_gradient embed.out of head m0 <- 1", "B embed m0", "W embed m0",
                   "receive_gradient embed.out of head m1 <- 1", "BW embed m1", "reduce embed"}));
}

// trunk on 0; left and middle on 1; right and both losses on 2.
TEST(Lowering, AValueGoesOnceToEachPpCoordinateAndEveryConsumersGradientComesBack) {
  const GraphSpec graph = test::fan_out();
  const StageMap map = named_stages(graph, {{"trunk"}, {"left", "middle"}, {"right", "loss.left", "loss.right"}});
  const Lines trunk = lowered(gpipe(3, 1), map, graph, 0);
  EXPECT_EQ(trunk, (Lines{"F trunk m0", "send trunk.out m0 -> 1", "send trunk.out m0 -> 2", "send mask m0 -> 1",
                          "send mask m0 -> 2", "receive_gradient trunk.out of right m0 <- 2",
                          "receive_gradient trunk.out of middle m0 <- 1", "receive_gradient trunk.out of left m0 <- 1",
                          "BW trunk m0", "reduce trunk"}));
  EXPECT_EQ(lowered(gpipe(3, 1), map, graph, 1),
            (Lines{"receive trunk.out m0 <- 0", "receive mask m0 <- 0", "F left m0", "F middle m0",
                   "send left.out m0 -> 2", "send middle.out m0 -> 2",  //
                   "receive_gradient middle.out of loss.right m0 <- 2", "BW middle m0",
                   "send_gradient trunk.out of middle m0 -> 0", "reduce middle",
                   "receive_gradient left.out of loss.left m0 <- 2", "receive_gradient left.out of right m0 <- 2",
                   "BW left m0", "send_gradient trunk.out of left m0 -> 0", "reduce left"}));
}

TEST(Lowering, SeveralStagesOfAPpCoordinateShareOneReceive) {
  const GraphSpec graph = test::skips();
  const StageMap map = unit_stages(graph, {0, 0, 1, 0, 1, 1});
  StageTable table = on_one_pp_coordinate(gpipe(6, 2));
  std::vector<std::vector<StageAction>> actions(2);
  for (const StageAction& action : table.actions[0]) {
    actions[static_cast<std::size_t>(map.pp_coordinates[static_cast<std::size_t>(action.stage)])].push_back(action);
  }
  table.actions = actions;
  const Lines lines = lowered(table, map, graph, 1);
  EXPECT_EQ(only(lines, "receive down.0.out"), (Lines{"receive down.0.out m0 <- 0", "receive down.0.out m1 <- 0"}));
  EXPECT_EQ(only(lines, "receive down.1.out"), (Lines{"receive down.1.out m0 <- 0", "receive down.1.out m1 <- 0"}));
}

// pp 0 sends the skip first, pp 1 needs it last: the channel is a queue, so it is taken out early.
TEST(Lowering, ReceivesFollowTheOrderOfTheChannel) {
  const GraphSpec graph = test::skips();
  const StageMap map =
      named_stages(graph, {{"down.0"}, {"down.1"}, {"bottom"}, {"up.1"}, {"up.0", "loss"}}, {0, 0, 1, 0, 1});
  const StageTable table = parse_table("0F0 1F0 3F0\n2F0 4F0", "text");
  EXPECT_EQ(lowered(table, map, graph, 0),
            (Lines{"F down.0 m0", "send down.0.out m0 -> 1", "F down.1 m0", "send down.1.out m0 -> 1",
                   "receive bottom.out m0 <- 1", "F up.1 m0", "send up.1.out m0 -> 1"}));
  EXPECT_EQ(lowered(table, map, graph, 1),
            (Lines{"receive down.0.out m0 <- 0", "receive down.1.out m0 <- 0", "F bottom m0", "send bottom.out m0 -> 0",
                   "receive up.1.out m0 <- 0", "F up.0 m0", "F loss m0"}));
}

TEST(Lowering, ForwardOnlyHasNoGradientsAndNoReduce) {
  const GraphSpec graph = test::branches();
  const StageMap map = even_stages(graph, 3);
  for (int pp_coordinate = 0; pp_coordinate < 3; ++pp_coordinate) {
    for (const std::string& line : lowered(forward_only(3, 2), map, graph, pp_coordinate)) {
      EXPECT_TRUE(line.starts_with("F ") || line.starts_with("send ") || line.starts_with("receive ")) << line;
    }
  }
}

TEST(Lowering, TheOwnerOfATiedParameterWaitsForAllUsersOnItsPpCoordinate) {
  const GraphSpec graph = test::chain(1, true);
  EXPECT_EQ(only(lowered(one_stage(1), even_stages(graph, 1), graph, 0), "reduce"),
            (Lines{"reduce layers.0", "reduce embed"}));
  // The backward for the inputs passes embed first; its table is complete only after head's W.
  const StageMap map = on_one_pp_coordinate(even_stages(graph, 3));
  const StageTable table = parse_table("0F0 1F0 2F0 2B0 1B0 0B0 0W0 1W0 2W0", "text");
  const Lines lines = lowered(table, map, graph, 0);
  EXPECT_EQ(Lines(lines.end() - 7, lines.end()), (Lines{"B embed m0", "W embed m0", "W layers.0 m0", "reduce layers.0",
                                                        "W loss m0", "W head m0", "reduce embed"}));
}

TEST(Lowering, ABorrowerIsReducedWhereTheOwnerIsElsewhere) {
  const GraphSpec graph = test::chain(1, true);
  const StageMap map = even_stages(graph, 3);
  EXPECT_EQ(only(lowered(gpipe(3, 2), map, graph, 0), "reduce"), (Lines{"reduce embed"}));
  EXPECT_EQ(only(lowered(gpipe(3, 2), map, graph, 2), "reduce"), (Lines{"reduce head"}));
}

TEST(Lowering, UnitsWithoutTrainableParametersAreNotReduced) {
  const GraphSpec graph = test::GraphMaker("frozen")
                              .unit("a", {"ids"}, false)
                              .frozen("a.table")
                              .unit("b", {"a.out"})
                              .frozen("b.table")
                              .loss("loss", {"b.out"})
                              .done();
  EXPECT_EQ(only(lowered(one_stage(2), even_stages(graph, 1), graph, 0), "reduce"), (Lines{"reduce b"}));
}

TEST(Lowering, OriginsPointAtTheStageActions) {
  const GraphSpec graph = test::chain(0);
  const StageMap map = even_stages(graph, 2);
  const LoweredList list = lower_with_origins(gpipe(2, 1), map, graph, 1);
  EXPECT_EQ(list.origins, (std::vector<int>{0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(list.actions.size(), list.origins.size());
}

TEST(Actions, TextNamesUnitsValuesAndPeers) {
  const GraphSpec graph = test::chain(1);
  EXPECT_EQ(to_string(Action{.kind = ActionKind::gather, .unit = 1}, graph), "gather layers.0");
  EXPECT_EQ(to_string(Action{.kind = ActionKind::free, .unit = 1}, graph), "free layers.0");
  EXPECT_EQ(to_string(Action{.kind = ActionKind::send, .value = 9, .peer = 1, .microbatch = 2}, graph),
            "send value 9 m2 -> 1");
  EXPECT_EQ(to_string(Action{.kind = ActionKind::forward, .unit = -1, .microbatch = 2}, graph), "F unit -1 m2");
}

}  // namespace lowering_test
}  // namespace orthant
