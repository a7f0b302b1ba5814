#include "orthant/schedule/named_schedules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/simulate.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"

namespace orthant {
namespace named_schedules_test {

using test::thrown_text;

TEST(NamedSchedules, EveryOneIsValidForAnyNumberOfMicrobatches) {
  for (const std::string& name : schedule_names()) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 14; ++m) {
        const Schedule schedule = make_schedule(name, p, 0, m);
        EXPECT_NO_THROW(validate_chain(schedule.table, schedule.pp_coordinates, peak_in_flight(schedule.table)))
            << name << "\n"
            << to_text(schedule.table);
        EXPECT_EQ(schedule.pp_coordinates, stage_pp_coordinates(schedule.table)) << name;
      }
    }
  }
}

TEST(NamedSchedules, PlacementsLoopAndTurn) {
  EXPECT_EQ(schedule_placement("1f1b", 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(schedule_placement("interleaved", 3), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(schedule_placement("interleaved", 2, 3), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(schedule_placement("zbv", 3), (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

TEST(NamedSchedules, AreTheGeneratorsOfTheirNames) {
  EXPECT_EQ(make_schedule("gpipe", 3, 0, 4).table, gpipe(3, 4));
  EXPECT_EQ(make_schedule("1f1b", 3, 1, 4).table, one_forward_one_backward(3, 4));
  EXPECT_EQ(make_schedule("interleaved", 3, 3, 4).table, interleaved(3, 3, 4));
  EXPECT_EQ(make_schedule("zbh1", 3, 0, 4).table, zbh1(3, 4));
  EXPECT_EQ(make_schedule("zbv", 3, 2, 4).table, zbv(3, 4));
}

TEST(NamedSchedules, RefuseNamesStagesAndSizes) {
  EXPECT_EQ(thrown_text([] { make_schedule("1f1", 2, 0, 4); }),
            "unknown schedule \"1f1\"\n"
            "did you mean \"1f1b\"? (one of gpipe, 1f1b, interleaved, zbh1, zbv)");
  EXPECT_EQ(thrown_text([] { virtual_stages("interleaved", 1); }),
            "schedule interleaved with 1 stage per pp coordinate\n"
            "set at least 2 virtual stages, or the schedule 1f1b");
  EXPECT_EQ(thrown_text([] { virtual_stages("zbv", 3); }),
            "schedule zbv with 3 stages per pp coordinate\n"
            "set 2 virtual stages, or the schedule interleaved");
  EXPECT_EQ(thrown_text([] { virtual_stages("gpipe", 2); }),
            "schedule gpipe with 2 stages per pp coordinate\n"
            "set 1 virtual stage, or the schedule interleaved");
  EXPECT_EQ(thrown_text([] { make_schedule("1f1b", 2, 0, 0); }),
            "schedule 1f1b of 2 pp coordinates and 0 microbatches\n"
            "set at least one pp coordinate and one microbatch");
  EXPECT_EQ(thrown_text([] { make_schedule("interleaved", 100000, 100000, 100000); }),
            "schedule interleaved of 100000 pp coordinates with 100000 stages each and 100000 microbatches has more "
            "than 1000000 "
            "forward passes of stages\n"
            "set fewer pp coordinates, stages or microbatches");
}

// Two towers and their fusion, which reads both; `work` per tower.
GraphSpec towers(double left, double right) {
  return test::GraphMaker("towers")
      .unit("left", {"ids"})
      .flops(left, left, left)
      .unit("right", {"ids"})
      .flops(right, right, right)
      .unit("fusion", {"left.out", "right.out"})
      .flops(1, 1, 1)
      .loss("loss", {"fusion.out"})
      .done();
}

TEST(NamedSchedules, BranchesOnTheirOwnPpCoordinatesRunAtTheSameTime) {
  const GraphSpec graph = towers(1, 1);
  const StageMap map = named_stages(graph, {{"left"}, {"right"}, {"fusion", "loss"}});
  const StageTable table = make_schedule("1f1b", map, graph, 4);
  EXPECT_NO_THROW(validate(table, map, graph, {2, 2, 1}));
  EXPECT_EQ(simulate(table, stage_edges(map, graph), flop_costs(map, graph)).makespan, 15);
  EXPECT_EQ(simulate(one_forward_one_backward(3, 4), chain_edges(3), flop_costs(map, graph)).makespan, 18);
}

// The left tower on pp 0, the right one and the fusion on pp 1: half of the work each.
TEST(NamedSchedules, TwoTowersOnTwoPpCoordinatesMeetAtTheFusion) {
  const GraphSpec graph = towers(5, 4);
  const StageMap map = named_stages(graph, {{"left"}, {"right"}, {"fusion", "loss"}}, {0, 1, 1});
  const StageCosts costs = flop_costs(map, graph);
  for (const std::string name : {"gpipe", "1f1b", "zbh1"}) {
    const StageTable table = make_schedule(name, map, graph, 8);
    EXPECT_NO_THROW(validate(table, map, graph)) << name;
    const Simulation result = simulate(table, stage_edges(map, graph), costs);
    EXPECT_EQ(result.busy, (std::vector<double>{120, 120})) << name;
    // The chain left | right + fusion starts its second pp coordinate when the first has done its first forward, at
    // least.
    EXPECT_LT(result.makespan, 120 + 15) << name << "\n" << to_text(table);
  }
  EXPECT_EQ(to_text(make_schedule("1f1b", map, graph, 3)),
            "0F0 0F1 0BW0 0F2 0BW1 0BW2\n"
            "1F0 1F1 2F0 2BW0 1BW0 2F1 2BW1 1F2 1BW1 2F2 2BW2 1BW2\n");
  const StageTable forward = make_forward_schedule(map, graph, 2);
  EXPECT_EQ(to_text(forward), "0F0 0F1\n1F0 1F1 2F0 2F1\n");
  EXPECT_NO_THROW(validate(forward, map, graph));
}

TEST(NamedSchedules, EveryGraphRunsUnderEverySchedule) {
  for (const GraphSpec& graph : {test::chain(6), test::chain(6, true), test::skips(), test::branches()}) {
    for (const std::string& name : schedule_names()) {
      const int stages_per_pp = virtual_stages(name);
      for (int pp_degree = 1; pp_degree * stages_per_pp <= 5; ++pp_degree) {
        StageMap map = even_stages(graph, pp_degree * stages_per_pp);
        map.pp_coordinates = schedule_placement(name, pp_degree, stages_per_pp);
        for (int m = 1; m <= 6; ++m) {
          const StageTable table = make_schedule(name, map, graph, m);
          EXPECT_NO_THROW(validate(table, map, graph)) << graph.name << " " << name << "\n" << to_text(table);
          EXPECT_NO_THROW(validate(make_forward_schedule(map, graph, m), map, graph)) << graph.name << " " << name;
        }
      }
    }
  }
}

TEST(NamedSchedules, AChainOfItsOwnPpCoordinatesIsThePlainTable) {
  const GraphSpec graph = test::chain(2);
  const StageMap map = even_stages(graph, 4);
  for (const std::string name : {"gpipe", "1f1b", "zbh1"}) {
    EXPECT_EQ(make_schedule(name, map, graph, 5), make_schedule(name, 4, 0, 5).table) << name;
  }
  StageMap turned = map;
  turned.pp_coordinates = {3, 2, 1, 0};
  StageTable mirrored = one_forward_one_backward(4, 5);
  std::ranges::reverse(mirrored.actions);
  EXPECT_EQ(make_schedule("1f1b", turned, graph, 5), mirrored);
}

TEST(NamedSchedules, LoopedOnesAskForTheirPlacement) {
  const GraphSpec graph = test::chain(2);
  StageMap map = even_stages(graph, 4);
  map.pp_coordinates = {0, 0, 1, 1};
  EXPECT_EQ(thrown_text([&] { make_schedule("interleaved", map, graph, 2); }),
            "schedule interleaved cannot have its stages on pp coordinates 0, 0, 1, 1\n"
            "leave the placement out, or set it to 0, 1, 0, 1");
  EXPECT_EQ(thrown_text([&] { make_schedule("zbv", map, graph, 2); }),
            "schedule zbv cannot have its stages on pp coordinates 0, 0, 1, 1\n"
            "leave the placement out, or set it to 0, 1, 1, 0");
  map.pp_coordinates = {0, 1, 2, 1};
  EXPECT_EQ(thrown_text([&] { make_schedule("zbv", map, graph, 2); }),
            "schedule zbv on 3 pp coordinates cannot have 4 stages\ncut the model into 6 stages");
  EXPECT_EQ(thrown_text([&] { make_schedule("interleaved", even_stages(graph, 4), graph, 2); }),
            "schedule interleaved on 4 pp coordinates cannot have 4 stages\n"
            "cut the model into 8, 12 or another multiple of 4 stages");
}

}  // namespace named_schedules_test
}  // namespace orthant
