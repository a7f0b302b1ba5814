#include "orthant/schedule/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

// u0 .. u5 of equal time in a chain, then a loss without any: stages of four units are too heavy, so three cuts into
// two stages are left that take the same time where one unit takes none.
GraphSpec tied_graph(std::vector<std::int64_t> parameters, std::vector<std::int64_t> values) {
  test::GraphMaker maker("ties");
  for (std::size_t u = 0; u < parameters.size(); ++u) {
    maker.unit("u" + std::to_string(u), {u == 0 ? "ids" : "u" + std::to_string(u - 1) + ".out"});
  }
  maker.loss("loss", {"u" + std::to_string(parameters.size() - 1) + ".out"});
  GraphSpec graph = maker.done();
  for (std::size_t u = 0; u < parameters.size(); ++u) {
    graph.units[u].parameters[0].shape = {parameters[u]};
    graph.values[u].shape = {values[u]};
  }
  return graph;
}

const std::vector<double> kTiedCosts = {2, 2, 0, 0, 2, 2, 0};  // u2 and u3 may stand on either side

std::size_t second_stage(const GraphSpec& graph, const SplitOptions& options) {
  return static_cast<std::size_t>(split_stages(graph, 2, options).map.units[1].front());
}

TEST(SplitStages, EqualTimesAreToldApartByMemory) {
  const SplitOptions options{.unit_costs = kTiedCosts};
  const std::vector<std::int64_t> alike(6, 8);
  EXPECT_EQ(second_stage(tied_graph({5, 5, 5, 5, 5, 5}, alike), options), 3U);  // as many units each
  EXPECT_EQ(second_stage(tied_graph({5, 5, 5, 5, 50, 5}, alike), options), 4U);
  EXPECT_EQ(second_stage(tied_graph({50, 5, 5, 5, 5, 5}, alike), options), 2U);
  // Bytes that the caller knows count more than parameters.
  SplitOptions known = options;
  known.memory.state_bytes = {5, 5, 5, 5, 50, 5, 0};
  EXPECT_EQ(second_stage(tied_graph({50, 5, 5, 5, 5, 5}, alike), known), 4U);
  known.memory.state_bytes = {1, 1, 1, 1, 1, 1, 0};
  known.memory.kept_bytes = {10, 10, 10, 10, 10, 10, 0};
  known.memory.in_flight = {2, 1};
  EXPECT_EQ(second_stage(tied_graph({5, 5, 5, 5, 50, 5}, alike), known), 2U);
  // A cut that takes longer is never the better one.
  EXPECT_EQ(second_stage(tied_graph({500, 5, 5, 5, 5, 5}, alike), {.unit_costs = {2, 2, 2, 2, 2, 2, 0}}), 3U);
}

TEST(SplitStages, EqualTimesAndMemoryAreToldApartByTraffic) {
  const SplitOptions options{.unit_costs = kTiedCosts};
  const std::vector<std::int64_t> parameters = {50, 5, 0, 0, 5, 50};
  EXPECT_EQ(second_stage(tied_graph(parameters, {8, 2, 8, 8, 8, 8}), options), 2U);
  EXPECT_EQ(second_stage(tied_graph(parameters, {8, 8, 2, 8, 8, 8}), options), 3U);
  EXPECT_EQ(second_stage(tied_graph(parameters, {8, 8, 8, 2, 8, 8}), options), 4U);
  // Memory counts before traffic.
  EXPECT_EQ(second_stage(tied_graph({50, 5, 1, 1, 5, 5}, {8, 8, 8, 2, 8, 8}), options), 2U);
}

// Against every cut, by the four rules one after the other.
TEST(SplitStages, NoCutOfTheSameTimeHasLessMemoryOrTraffic) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int units = 3 + static_cast<int>(random() % 6);
    const int stages = 2 + static_cast<int>(random() % 2);
    std::vector<std::int64_t> parameters, values;
    std::vector<double> costs;
    for (int u = 0; u < units; ++u) {
      parameters.push_back(1 + static_cast<std::int64_t>(random() % 3));
      values.push_back(1 + static_cast<std::int64_t>(random() % 3));
      costs.push_back(static_cast<double>(random() % 2));
    }
    costs[0] = 1;  // without any cost, units count
    costs.push_back(0);
    const GraphSpec graph = tied_graph(parameters, values);
    using Rank = std::array<double, 4>;  // heaviest, squares, fullest, received
    const auto rank_of = [&](unsigned cuts) {
      Rank rank = {};
      double cost = 0, held = 0;
      for (int u = 0; u <= units; ++u) {
        const bool begins = u > 0 && u < units && (cuts >> (u - 1) & 1) != 0;
        if (begins || u == units) {
          rank[0] = std::max(rank[0], cost);
          rank[1] += cost * cost;
          rank[2] = std::max(rank[2], held);
          cost = held = 0;
        }
        if (begins) rank[3] += static_cast<double>(values[static_cast<std::size_t>(u - 1)]);
        if (u == units) break;
        cost += costs[static_cast<std::size_t>(u)];
        held += static_cast<double>(parameters[static_cast<std::size_t>(u)]);
      }
      return rank;
    };
    Rank best = {std::numeric_limits<double>::infinity()};
    for (unsigned cuts = 0; cuts < 1U << (units - 1); ++cuts) {
      if (__builtin_popcount(cuts) == stages - 1) best = std::min(best, rank_of(cuts));
    }
    unsigned chosen = 0;
    const StageSplit split = split_stages(graph, stages, {.unit_costs = costs});
    for (std::size_t s = 1; s < split.map.units.size(); ++s) chosen |= 1U << (split.map.units[s].front() - 1);
    EXPECT_EQ(rank_of(chosen), best) << "round " << round << ", " << stages << " stages";
  }
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
