// The simulator on the closed forms of the literature, where they are defined, and on small tables worked by hand.
#include "orthant/schedule/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace simulate_test {

using test::thrown_text;

// Whole numbers, so that sums are exact.
const std::vector<StageCost> kCosts = {{1, 1, 1, 0}, {3, 4, 2, 0}, {2, 3, 2, 0}, {2, 1, 1, 0}, {1, 2, 3, 0}};

double makespan(const StageTable& table, const StageCost& cost) {
  const StageCosts costs(static_cast<std::size_t>(table.num_stages), cost);
  return simulate(table, chain_edges(table.num_stages), costs).makespan;
}

double work(const StageCost& cost) {
  return cost.forward + cost.inputs + cost.weights;
}

TEST(Simulate, GpipeAnd1f1bTakeTheTextbookTime) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m <= 33; ++m) {
      for (const StageCost& cost : kCosts) {
        EXPECT_EQ(makespan(gpipe(p, m), cost), (m + p - 1) * work(cost))
            << p << " pp coordinates, " << m << " microbatches";
        EXPECT_EQ(makespan(one_forward_one_backward(p, m), cost), (m + p - 1) * work(cost)) << p << " " << m;
      }
    }
  }
}

TEST(Simulate, InterleavingDividesTheBubble) {
  for (int p = 2; p <= 16; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = p; m <= 3 * p; m += p) {
        for (const StageCost& cost : kCosts) {
          // Costs are of one of v stages: the bubble is (p-1)(F+B+W)/v of the pp coordinate's.
          EXPECT_EQ(makespan(interleaved(p, v, m), cost), (m * v + p - 1) * work(cost))
              << p << " pp coordinates, " << v << " stages each, " << m << " microbatches";
        }
      }
    }
  }
}

// Other numbers of microbatches: at most the time of whole groups, at least that of the work and of the way through.
TEST(Simulate, InterleavingWithAnyNumberOfMicrobatchesIsBounded) {
  const StageCost cost;
  for (int p = 2; p <= 9; ++p) {
    for (int v = 2; v <= 3; ++v) {
      for (int m = 1; m <= 3 * p; ++m) {
        const double time = makespan(interleaved(p, v, m), cost);
        const int whole = (m + p - 1) / p * p;
        EXPECT_LE(time, (whole * v + p - 1) * work(cost)) << p << " " << v << " " << m;
        EXPECT_GE(time, std::max((m * v + p - 1) * work(cost), p * v * work(cost))) << p << " " << v << " " << m;
      }
    }
  }
}

// (p-1)(F+B-W) as published, where W is the shortest; otherwise a first or last pp coordinate's own start-up decides.
TEST(Simulate, ZeroBubbleH1HasThePublishedBubble) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = p; m <= 40; ++m) {
      for (const StageCost& cost : kCosts) {
        const double published = cost.forward + cost.inputs - cost.weights;
        const double bubble = (p - 1) * std::max({published, cost.forward, cost.inputs});
        EXPECT_EQ(makespan(zbh1(p, m), cost), m * work(cost) + bubble)
            << p << " pp coordinates, " << m << " microbatches";
      }
    }
  }
}

TEST(Simulate, ZeroBubbleH1WithFewMicrobatchesTakesOneWayThroughAndTheRest) {
  const StageCost cost;
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m < p; ++m) {
      const double time = makespan(zbh1(p, m), cost);
      EXPECT_LE(time, makespan(one_forward_one_backward(p, m), cost)) << p << " " << m;
      EXPECT_GE(time, std::max(m * work(cost) + p - 1, 2.0 * p + 1)) << p << " " << m;
    }
  }
}

// The last pp coordinate cannot start before p-1 forwards are through: no schedule of this placement is shorter.
TEST(Simulate, ZeroBubbleVWaitsForItsFirstInputOnly) {
  const StageCost cost;
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m <= 2 * p + 4; ++m) {
      const double shortest = 2 * m * work(cost) + p - 1;
      const double time = makespan(zbv(p, m), cost);
      if (m >= 2 * p - 1) {
        EXPECT_EQ(time, shortest) << p << " pp coordinates, " << m << " microbatches";
      } else {
        EXPECT_GE(time, std::max(shortest, 4.0 * p + 1)) << p << " pp coordinates, " << m << " microbatches";
        EXPECT_LE(time, 2 * makespan(one_forward_one_backward(p, m), cost)) << p << " " << m;
      }
    }
  }
}

TEST(Simulate, CountsBusyTimeBubblesAndMicrobatchesInFlight) {
  const StageTable table = one_forward_one_backward(2, 3);
  const Simulation result = simulate(table, chain_edges(2), {{1, 1, 1, 0}, {1, 1, 1, 0}});
  EXPECT_EQ(result.makespan, 12);
  EXPECT_EQ(result.busy, (std::vector<double>{9, 9}));
  EXPECT_EQ(result.bubble_fractions, (std::vector<double>{0.25, 0.25}));
  EXPECT_EQ(result.bubble_fraction, 0.25);
  EXPECT_EQ(result.peak_in_flight, (std::vector<int>{2, 1}));
  ASSERT_EQ(result.actions[1].size(), 6U);
  EXPECT_EQ(result.actions[1][1].action, (StageAction{1, StageKind::BW, 0}));
  EXPECT_EQ(result.actions[1][1].start, 2);
  EXPECT_EQ(result.actions[1][1].end, 4);
}

TEST(Simulate, UnevenStagesWaitForTheSlowest) {
  // Stage 1 is twice as slow: 1 forward before it, its 4 x 6, and stage 0's last backward.
  const Simulation result = simulate(one_forward_one_backward(2, 4), chain_edges(2), {{1, 1, 1, 0}, {2, 2, 2, 0}});
  EXPECT_EQ(result.makespan, 1 + 4 * 6 + 2);
  EXPECT_EQ(result.busy, (std::vector<double>{12, 24}));
  EXPECT_DOUBLE_EQ(result.bubble_fraction, 1 - 36.0 / 54.0);
}

TEST(Simulate, SendingTakesTimeBetweenPpCoordinatesOnly) {
  const StageCosts costs = {{1, 1, 1, 0.5}, {1, 1, 1, 10}};
  // 0F0, send 0.5, 1F0, 1BW0, its gradient 0.5, 0BW0; stage 1 sends nothing.
  EXPECT_EQ(simulate(one_forward_one_backward(2, 1), chain_edges(2), costs).makespan, 1 + 0.5 + 1 + 2 + 0.5 + 2);
  EXPECT_EQ(simulate(on_one_pp_coordinate(one_forward_one_backward(2, 1)), chain_edges(2), costs).makespan, 6);
}

TEST(Simulate, BranchesDoNotWaitForEachOther) {
  const StageEdges edges{{{}, {}, {0, 1}}, {{2}, {2}, {}}};
  const StageTable table = one_forward_one_backward(edges, 4);
  EXPECT_EQ(to_text(table),
            "0F0 0F1 0BW0 0F2 0BW1 0F3 0BW2 0BW3\n"
            "1F0 1F1 1BW0 1F2 1BW1 1F3 1BW2 1BW3\n"
            "2F0 2BW0 2F1 2BW1 2F2 2BW2 2F3 2BW3\n");
  const StageCosts costs(3);
  EXPECT_EQ(simulate(table, edges, costs).makespan, (4 + 1) * 3);  // two deep, not three
  EXPECT_EQ(simulate(one_forward_one_backward(3, 4), chain_edges(3), costs).makespan, (4 + 2) * 3);
}

TEST(Simulate, ForwardOnlyTablesHaveTimesToo) {
  const Simulation result = simulate(forward_only(3, 4), chain_edges(3), StageCosts(3));
  EXPECT_EQ(result.makespan, 6);
  EXPECT_EQ(result.peak_in_flight, (std::vector<int>{1, 1, 1}));
  const Simulation nothing = simulate(forward_only(1, 1), chain_edges(1), {{0, 0, 0, 0}});
  EXPECT_EQ(nothing.makespan, 0);
  EXPECT_EQ(nothing.bubble_fraction, 0);
}

// Every action starts at the end of something, or at once: no pp coordinate waits without reason, and none runs two at
// a time.
TEST(Simulate, StartsAsSoonAsPossibleOnRandomCosts) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::string& name = schedule_names()[random() % 5];
    const Schedule schedule =
        make_schedule(name, 1 + static_cast<int>(random() % 5), 0, 1 + static_cast<int>(random() % 9));
    StageCosts costs;
    for (int s = 0; s < schedule.table.num_stages; ++s) {
      const auto draw = [&] { return static_cast<double>(random() % 8); };
      const double forward = draw();
      const double inputs = draw();
      const double weights = draw();
      costs.push_back({forward, inputs, weights, draw()});
    }
    const StageEdges edges = chain_edges(schedule.table.num_stages);
    const Simulation result = simulate(schedule.table, edges, costs);
    std::set<double> arrivals = {0};
    for (const auto& actions : result.actions) {
      for (const TimedAction& timed : actions) {
        arrivals.insert(timed.end);
        for (const StageCost& cost : costs) arrivals.insert(timed.end + cost.send);
      }
    }
    for (const auto& actions : result.actions) {
      double last = 0;
      for (const TimedAction& timed : actions) {
        EXPECT_GE(timed.start, last) << name;
        EXPECT_TRUE(arrivals.contains(timed.start)) << name << " " << to_string(timed.action);
        EXPECT_EQ(timed.end - timed.start, costs[static_cast<std::size_t>(timed.action.stage)].of(timed.action.kind));
        last = timed.end;
      }
    }
  }
}

TEST(Simulate, RefusesTablesThatStopAndCostsThatAreNone) {
  EXPECT_EQ(thrown_text([] {
              simulate(parse_table("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1", "text"), chain_edges(2), StageCosts(2));
            }),
            "0BW0 on pp 0 waits for ever\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0   [0BW0]  0F1    0BW1\n"
            "pp 1     |  1F0    1F1    1BW0   1BW1\n"
            "simulate a table that validate() accepts");
  EXPECT_EQ(thrown_text([] { simulate(gpipe(2, 1), chain_edges(2), StageCosts(3)); }),
            "2 stages have 3 costs\ngive one cost per stage");
  EXPECT_EQ(thrown_text([] { simulate(gpipe(1, 1), chain_edges(1), {{1, -1, 1, 0}}); }),
            "a cost of stage 0 is -1\ngive finite costs that are not negative");
  EXPECT_EQ(thrown_text([] { simulate(gpipe(1, 1), chain_edges(1), {{std::nan(""), 1, 1, 0}}); }),
            "a cost of stage 0 is nan\ngive finite costs that are not negative");
  EXPECT_EQ(thrown_text<InternalError>([] { simulate(gpipe(2, 1), chain_edges(3), StageCosts(2)); }),
            "2 stages have the edges of 3\n");
}

}  // namespace simulate_test
}  // namespace orthant
