// Forwards that make gradients: those whose own whole backward is the next thing that happens to the unit.
#include "orthant/schedule/forward_gradients.h"

#include <gtest/gtest.h>

#include "orthant/schedule/lowering.h"
#include "orthant/schedule/pipeline.h"
#include "schedule/graphs.h"

namespace orthant {
namespace forward_gradients_test {

// A chain whose last unit is head and loss.
GraphSpec joined_chain() {
  GraphSpec graph = test::chain(4);
  graph.units.back().logits = ChunkedLogits{.classes = 8, .rows = 2, .loss = "entropy"};
  return graph;
}

ForwardGradients of_schedule(const std::string& schedule, int ranks, int microbatches) {
  const GraphSpec graph = joined_chain();
  PipelineSettings settings;
  settings.schedule = schedule;
  const Pipeline pipeline = make_pipeline(graph, ranks, microbatches, settings);
  return gradients_in_forward(lower(pipeline.table, pipeline.map, graph, pipeline.unit_pp_coordinates().back()), graph);
}

ForwardGradients all_of(int microbatches) {
  ForwardGradients all;
  const int last = static_cast<int>(joined_chain().units.size()) - 1;
  for (int m = 0; m < microbatches; ++m) all.insert({last, m});
  return all;
}

TEST(GradientsInForward, AreThoseWhoseBackwardFollowsAtOnce) {
  for (const int microbatches : {1, 2, 5}) {
    EXPECT_EQ(of_schedule("1f1b", 1, microbatches), all_of(microbatches)) << "one rank";
    EXPECT_EQ(of_schedule("1f1b", 2, microbatches), all_of(microbatches)) << "the last stage has none in flight";
  }
  EXPECT_EQ(of_schedule("gpipe", 2, 1), all_of(1));
  EXPECT_TRUE(of_schedule("zbh1", 2, 4).empty()) << "backwards are split";
}

// All forwards run before the first backward: of the last one alone nothing else lies between, but that one's backward
// comes after others'.
TEST(GradientsInForward, NotWhereOtherPassesOfTheUnitLieBetween) {
  EXPECT_TRUE(of_schedule("gpipe", 2, 3).empty());
}

TEST(GradientsInForward, OtherUnitsHaveNone) {
  const GraphSpec graph = test::chain(4);
  const Pipeline pipeline = make_pipeline(graph, 1, 2, {});
  EXPECT_TRUE(gradients_in_forward(lower(pipeline.table, pipeline.map, graph, 0), graph).empty());
}

TEST(JoinedUnits, StagesAndCostsMayNameTheLoss) {
  const GraphSpec graph = joined_chain();
  std::vector<std::string> names;
  for (const UnitSpec& unit : graph.units) names.push_back(unit.name);
  PipelineSettings settings;
  settings.split = {{names.begin(), names.begin() + 2}, {names.begin() + 2, names.end()}};
  settings.split.back().emplace_back("entropy");
  EXPECT_EQ(make_pipeline(graph, 2, 2, settings).map.units.back().size(), names.size() - 2);
  settings.split.back().pop_back();
  settings.split.front().emplace_back("entropy");
  try {
    make_pipeline(graph, 2, 2, settings);
    FAIL() << "not refused";
  } catch (const std::exception& error) {
    EXPECT_EQ(std::string(error.what()), "parallel.split puts " + names.back() +
                                             " and entropy in two stages; they are one unit\n"
                                             "  fix: name both in one stage, or set train.join_head_and_loss=off");
  }
  settings.split.clear();
  for (const auto& name : names) settings.unit_costs[name] = 1;
  settings.unit_costs["entropy"] = static_cast<double>(names.size()) - 2;
  EXPECT_EQ(make_pipeline(graph, 2, 2, settings).map.units.back().size(), 1U) << "its cost is the head's";
}

}  // namespace forward_gradients_test
}  // namespace orthant
