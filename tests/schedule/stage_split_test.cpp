#include "orthant/schedule/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/grid.h"
#include "schedule/graphs.h"

namespace orthant {
namespace stage_split_test {

using test::thrown_text;
using Units = std::vector<std::vector<int>>;

TEST(SplitStages, TellTheImbalance) {
  const GraphSpec graph = test::chain(4);  // embed, 4 layers of 3 FLOPs, head, loss
  const StageSplit even = split_stages(graph, 2);
  EXPECT_EQ(even.map, even_stages(graph, 2));
  EXPECT_EQ(even.costs, (std::vector<double>{6, 6}));
  EXPECT_EQ(even.imbalance, 1);
  EXPECT_EQ(split_stages(graph, 3).imbalance, 6 / 4.0);
  EXPECT_EQ(split_stages(test::skips(), 2).imbalance, 1);  // no costs at all
}

TEST(SplitStages, TakeMeasuredCosts) {
  const GraphSpec graph = test::chain(4);
  const StageSplit split = split_stages(graph, 2, {.unit_costs = {0.5, 1, 1, 1, 1, 4, 0.25}});
  EXPECT_EQ(split.map.units, (Units{{0, 1, 2, 3, 4}, {5, 6}}));
  EXPECT_EQ(split.costs, (std::vector<double>{4.5, 4.25}));
  EXPECT_DOUBLE_EQ(split.imbalance, 4.5 / 4.375);
}

TEST(SplitStages, KeepToTheMemoryOfAPpCoordinate) {
  const GraphSpec graph = test::chain(4);
  SplitOptions options;
  options.unit_costs = {0, 1, 1, 1, 1, 0, 0};
  options.memory.state_bytes = {30, 10, 10, 10, 10, 10, 0};
  options.memory.kept_bytes = {1, 10, 10, 10, 10, 1, 1};
  options.memory.in_flight = stage_peaks(one_forward_one_backward(2, 8));
  const StageSplit free = split_stages(graph, 2, options);
  EXPECT_EQ(free.map.units, (Units{{0, 1, 2}, {3, 4, 5, 6}}));
  EXPECT_EQ(free.memory_bytes, (std::vector<std::int64_t>{50 + 2 * 21, 30 + 22}));
  options.memory.rank_bytes = 75;
  const StageSplit bound = split_stages(graph, 2, options);
  EXPECT_EQ(bound.map.units, (Units{{0, 1}, {2, 3, 4, 5, 6}}));
  EXPECT_EQ(bound.memory_bytes, (std::vector<std::int64_t>{40 + 2 * 11, 40 + 32}));
  EXPECT_EQ(bound.imbalance, 1.5);
}

TEST(SplitStages, FitIntoTheMemoryThatTheErrorAsksFor) {
  const GraphSpec graph = test::chain(4);
  SplitOptions options;
  options.memory = {.rank_bytes = 1 << 20, .state_bytes = {3'000'001, 1'000'003, 7, 5, 11, 1'000'019, 0}};
  const auto text = thrown_text([&] { split_stages(graph, 2, options); });
  const std::string key = "parallel.split_memory_gb=";
  const double gib = std::stod(text.substr(text.find(key) + key.size()));
  options.memory.rank_bytes = std::llround(gib * (1 << 30));
  EXPECT_NO_THROW(split_stages(graph, 2, options)) << text;
  EXPECT_LT(options.memory.rank_bytes, 3'100'000) << text;
}

TEST(SplitStages, NameWhatDoesNotFit) {
  const GraphSpec graph = test::chain(4);
  SplitOptions options;
  options.memory = {.rank_bytes = 71,
                    .state_bytes = {30, 10, 10, 10, 10, 10, 0},
                    .kept_bytes = {1, 10, 10, 10, 10, 1, 1},
                    .in_flight = {2, 1}};
  EXPECT_EQ(thrown_text([&] { split_stages(graph, 2, options); }),
            "graph \"chain\" cannot be cut into 2 stages that fit into 71 B per rank: in the cut that comes nearest, "
            "stage 1 (units \"layers.1\" to \"loss\", 1 microbatches in flight) needs 72 B\n"
            "set parallel.split_memory_gb=0.000001 or more, more stages, recompute, or a schedule that keeps fewer "
            "microbatches");
  options.memory = {.rank_bytes = 20, .state_bytes = {30, 10, 10, 10, 10, 10, 0}};
  EXPECT_EQ(thrown_text([&] { split_stages(graph, 4, options); }),
            "graph \"chain\" cannot be cut into 4 stages that fit into 20 B per rank: in the cut that comes nearest, "
            "stage 0 (unit \"embed\", 1 microbatches in flight) needs 30 B\n"
            "set parallel.split_memory_gb=0.000001 or more, more stages, recompute, or a schedule that keeps fewer "
            "microbatches");
}

TEST(SplitStages, StagesOfOnePpCoordinateShareItsBytes) {
  const GraphSpec graph = test::chain(4);
  SplitOptions options;
  options.pp_coordinates = {0, 1, 0, 1};
  options.memory = {.rank_bytes = 60, .state_bytes = {10, 10, 10, 10, 10, 10, 0}};
  const StageSplit split = split_stages(graph, 4, options);
  EXPECT_EQ(split.map.pp_coordinates, options.pp_coordinates);
  for (const std::int64_t bytes : split.memory_bytes) EXPECT_LE(bytes, 30);
  options.memory.rank_bytes = 39;
  EXPECT_TRUE(
      thrown_text([&] { split_stages(graph, 4, options); })
          .ends_with(
              "set parallel.split_memory_gb=0.000001 or more, more stages, recompute, or a schedule that keeps fewer "
              "microbatches"));
}

TEST(SplitStages, RefuseCostsThatAreNone) {
  const GraphSpec graph = test::chain(0);
  EXPECT_EQ(thrown_text([&] { split_stages(graph, 1, {.unit_costs = {1, -2, 1}}); }),
            "the cost of unit \"head\" is -2\ngive finite costs that are not negative");
  EXPECT_EQ(thrown_text([&] { split_stages(graph, 1, {.unit_costs = {1, std::nan(""), 1}}); }),
            "the cost of unit \"head\" is nan\ngive finite costs that are not negative");
  EXPECT_EQ(thrown_text<InternalError>([&] { split_stages(graph, 1, {.unit_costs = {1}}); }), "3 units have 1 costs\n");
  EXPECT_EQ(thrown_text<InternalError>([&] { split_stages(graph, 2, {.pp_coordinates = {0}}); }),
            "a stage split with other than one pp coordinate per stage\n");
}

// Against every cut, with a bound that some of them break.
TEST(SplitStages, NoCutThatFitsHasALighterHeaviestStage) {
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    const int units = 2 + static_cast<int>(random() % 7);
    const int stages = 1 + static_cast<int>(random() % static_cast<unsigned>(units));
    test::GraphMaker maker("random");
    SplitOptions options;
    for (int u = 0; u <= units; ++u) {
      options.unit_costs.push_back(u < units ? static_cast<double>(random() % 10) : 0);
      options.memory.state_bytes.push_back(u < units ? static_cast<int>(random() % 10) : 0);
      options.memory.kept_bytes.push_back(u < units ? static_cast<int>(random() % 10) : 0);
      const std::string input = u == 0 ? "ids" : "u" + std::to_string(u - 1) + ".out";
      if (u < units) maker.unit("u" + std::to_string(u), {input});
      if (u == units) maker.loss("loss", {input});
    }
    for (int s = 0; s < stages; ++s) options.memory.in_flight.push_back(stages - s);
    options.memory.rank_bytes = 1 + static_cast<int>(random() % 120);
    // Bit i of `cuts`: a stage begins at unit i + 1. The loss begins none.
    double best = std::numeric_limits<double>::infinity();
    for (unsigned cuts = 0; cuts < 1U << (units - 1); ++cuts) {
      if (__builtin_popcount(cuts) != stages - 1) continue;
      double heaviest = 0;
      std::vector<double> costs = {0};
      std::vector<std::int64_t> bytes = {0};
      for (int u = 0; u < units; ++u) {
        const auto unit = static_cast<std::size_t>(u);
        if (u > 0 && (cuts >> (u - 1) & 1) != 0) {
          costs.push_back(0);
          bytes.push_back(0);
        }
        heaviest = std::max(heaviest, costs.back() += options.unit_costs[unit]);
        bytes.back() += options.memory.state_bytes[unit] +
                        options.memory.in_flight[bytes.size() - 1] * options.memory.kept_bytes[unit];
      }
      if (std::ranges::max(bytes) <= options.memory.rank_bytes) best = std::min(best, heaviest);
    }
    const GraphSpec graph = maker.done();
    if (std::isinf(best)) {
      ++refused;
      EXPECT_NE(thrown_text([&] { split_stages(graph, stages, options); }).find("comes nearest"), std::string::npos);
      continue;
    }
    const StageSplit split = split_stages(graph, stages, options);
    EXPECT_EQ(std::ranges::max(split.costs), best) << "round " << round << ", " << stages << " stages";
    EXPECT_LE(std::ranges::max(split.memory_bytes), options.memory.rank_bytes) << "round " << round;
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 350);
}

}  // namespace stage_split_test
}  // namespace orthant
