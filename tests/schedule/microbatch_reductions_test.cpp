#include "orthant/schedule/microbatch_reductions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "schedule/random_tables.h"

namespace orthant {
namespace microbatch_reductions_test {

using Lines = std::vector<std::string>;

// Backwards and reductions of a list as text.
Lines backward_part(const std::vector<Action>& actions, const GraphSpec& graph) {
  Lines lines;
  for (const Action& action : actions) {
    if (action.kind != ActionKind::forward) lines.push_back(to_string(action, graph));
  }
  return lines;
}

TEST(Reductions, EveryMicrobatchLeavesBeforeTheStepIsComplete) {
  const GraphSpec graph = test::chain(1);
  const auto list = with_microbatch_reductions(lower(one_stage(2), even_stages(graph, 1), graph, 0), graph);
  EXPECT_EQ(backward_part(list, graph),
            (Lines{"BW loss m0", "BW head m0", "reduce head m0", "BW layers.0 m0", "reduce layers.0 m0", "BW embed m0",
                   "reduce embed m0",  //
                   "BW loss m1", "BW head m1", "reduce head m1", "reduce head", "BW layers.0 m1", "reduce layers.0 m1",
                   "reduce layers.0", "BW embed m1", "reduce embed m1", "reduce embed"}));
}

TEST(Reductions, TiedParametersWaitForTheLastUseOnTheList) {
  const GraphSpec graph = test::chain(1, true);
  const auto list = with_microbatch_reductions(lower(one_stage(1), even_stages(graph, 1), graph, 0), graph);
  EXPECT_EQ(backward_part(list, graph), (Lines{"BW loss m0", "BW head m0", "BW layers.0 m0", "reduce layers.0 m0",
                                               "reduce layers.0", "BW embed m0", "reduce embed m0", "reduce embed"}));
}

TEST(Reductions, ABorrowerHoldsWhatAnotherPpCoordinateOwns) {
  const GraphSpec graph = test::chain(1, true);
  const StageMap map = named_stages(graph, {{"embed", "layers.0"}, {"head", "loss"}});
  const auto list = with_microbatch_reductions(lower(gpipe(2, 1), map, graph, 1), graph);
  EXPECT_EQ(backward_part(list, graph),
            (Lines{"receive layers.0.out m0 <- 0", "BW loss m0", "BW head m0", "reduce head m0",
                   "send_gradient layers.0.out of head m0 -> 0", "reduce head"}));
}

TEST(Reductions, FrozenUnitsAndForwardListsHaveNone) {
  GraphSpec graph = test::chain(1);
  const auto forward = lower(forward_only(1, 2), even_stages(graph, 1), graph, 0);
  EXPECT_EQ(with_microbatch_reductions(forward, graph), forward);
  for (UnitSpec& unit : graph.units) {
    for (ParameterSpec& parameter : unit.parameters) parameter.trainable = false;
  }
  const auto frozen = lower(one_stage(2), even_stages(graph, 1), graph, 0);
  EXPECT_EQ(with_microbatch_reductions(frozen, graph), frozen);
}

// Of any list: one per unit and microbatch, right after a weight gradient of that microbatch, once all that it covers
// are made; and what was there stays as it was.
TEST(Reductions, RandomListsReduceEachMicrobatchOnceAsEarlyAsItIsComplete) {
  std::mt19937 random(74);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    const GraphSpec graph = test::random_graph(random);
    const StageMap map = test::random_stages(graph, random);
    const int microbatches = 1 + test::draw(random, 3);
    const StageTable table = test::TableDraw(graph, map, microbatches, 50, random).table();
    const auto actions = lower(table, map, graph, test::draw(random, map.pp_degree()));
    const auto list = with_microbatch_reductions(actions, graph);
    std::vector<Action> rest;
    std::map<int, int> reduced;  // unit -> microbatches so far
    std::vector<int> made(graph.units.size(), 0);
    for (const Action& action : list) {
      const bool part = action.kind == ActionKind::reduce && action.microbatch >= 0;
      if (!part) rest.push_back(action);
      const Action& maker = rest.back();
      EXPECT_TRUE(!part || maker.kind == ActionKind::backward || maker.kind == ActionKind::backward_weight);
      if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) {
        ++made[static_cast<std::size_t>(action.unit)];
      }
      if (action.kind == ActionKind::reduce && !part) {
        EXPECT_EQ(reduced[action.unit], microbatches);
      }
      if (!part) continue;
      EXPECT_EQ(action.microbatch, reduced[action.unit]++) << to_string(action, graph);
      EXPECT_EQ(maker.microbatch, action.microbatch) << to_string(action, graph) << " comes late";
      for (const ParameterSpec& parameter : graph.units[static_cast<std::size_t>(action.unit)].parameters) {
        if (!parameter.trainable) continue;
        for (const int user : graph.users(parameter.name)) {
          const bool here = std::ranges::find(actions, user, &Action::unit) != actions.end();
          EXPECT_TRUE(!here || made[static_cast<std::size_t>(user)] > action.microbatch) << to_string(action, graph);
        }
      }
    }
    EXPECT_EQ(rest, actions);
    const auto once = std::ranges::count(actions, ActionKind::reduce, &Action::kind);
    EXPECT_EQ(std::ranges::count(list, ActionKind::reduce, &Action::kind), once * (1 + microbatches));
  }
}

}  // namespace microbatch_reductions_test
}  // namespace orthant
