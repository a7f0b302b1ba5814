#include "plan/estimate/seed_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "plan/estimate/seed_functions.h"

namespace orthant {
namespace seed_figures_test {

using seed001::Degrees;
using seed001::Interconnect;

// All tests read the same page.
const std::vector<SeedExample>& page() {
  static const std::vector<SeedExample> examples = seed_examples();
  return examples;
}

const SeedExample& example(const std::string& name) {
  const auto found = std::ranges::find_if(page(), [&](const SeedExample& one) { return one.name.starts_with(name); });
  if (found == page().end()) throw std::out_of_range(name);
  return *found;
}

const SeedFigure& figure(const std::string& name, const std::string& quantity) {
  const auto& figures = example(name).figures;
  const auto found = std::ranges::find(figures, quantity, &SeedFigure::quantity);
  if (found == figures.end()) throw std::out_of_range(quantity);
  return *found;
}

void expect(const std::string& name, const std::string& quantity, std::optional<double> seed, double corrected,
            double near = 0.05) {
  const SeedFigure& found = figure(name, quantity);
  ASSERT_EQ(found.seed.has_value(), seed.has_value()) << quantity;
  if (seed) EXPECT_NEAR(*found.seed, *seed, near) << quantity;
  ASSERT_TRUE(found.corrected.has_value()) << quantity;
  EXPECT_NEAR(*found.corrected, corrected, near) << quantity;
}

TEST(SeedFunctions, RecommendItsOwnExamples) {
  const auto first = seed001::recommend_parallelism_config(70, 32, 80, Interconnect::nvlink, 80);
  EXPECT_EQ(first.degrees, (Degrees{.tp = 4, .pp = 1, .dp = 8}));
  EXPECT_EQ(first.min_tp, 3);
  EXPECT_NEAR(first.efficiency, 0.72675, 1e-9);
  const auto second = seed001::recommend_parallelism_config(175, 128, 80, Interconnect::infiniband, 96);
  EXPECT_EQ(second.degrees, (Degrees{.tp = 4, .pp = 4, .dp = 8}));
  EXPECT_EQ(second.min_tp, 7);
  EXPECT_NEAR(second.efficiency, 0.646, 1e-9);
}

TEST(SeedFunctions, LeaveCardsUnusedAndNameDegreesThatDivideNothing) {
  const auto odd = seed001::recommend_parallelism_config(70, 32, 80, Interconnect::infiniband, 80);
  EXPECT_EQ(odd.degrees, (Degrees{.tp = 3, .pp = 2, .dp = 5}));  // 30 of 32 cards, and 3 divides no heads
  EXPECT_EQ(seed001::memory_constrained_strategy(2000, 80, 32), (Degrees{.tp = 8, .pp = 4, .dp = 1}));
  EXPECT_EQ(seed001::memory_constrained_strategy(3000, 80, 48), (Degrees{.tp = 8, .pp = 5, .dp = 1}));
  EXPECT_EQ(seed001::throughput_optimized_strategy(128, Interconnect::infiniband, 96),
            (Degrees{.tp = 4, .pp = 4, .dp = 8}));
  EXPECT_EQ(seed001::throughput_optimized_strategy(8, Interconnect::ethernet, 96), (Degrees{.dp = 8}));
  EXPECT_EQ(seed001::latency_optimized_strategy(48, false), (Degrees{.tp = 48}));
  EXPECT_EQ(seed001::latency_optimized_strategy(48, true), Degrees{});
}

TEST(SeedFigures, NameTheCallsThatDoNotRun) {
  EXPECT_EQ(example("mesh of 64").failure, "NameError: name 'dp_size' is not defined");
  EXPECT_EQ(example("communication patterns").failure,
            "TypeError: HybridParallelConfig.__init__() got an unexpected keyword argument 'dp_size'");
  EXPECT_EQ(example("recommendation 1").failure, "NameError: name 'math' is not defined");
  EXPECT_EQ(example("memory of Llama").failure, "");
  EXPECT_EQ(example("communication of Llama").failure, "");
}

TEST(SeedFigures, LargestModelOfACard) {
  expect("largest model", "to serve", 70, 40);
  expect("largest model", "to train", 70, 4.44, 0.005);
  expect("largest model", "memory of the card", 80, 85.0);
}

TEST(SeedFigures, RanksAgreeAndDataGroupsDoNot) {
  expect("mesh of 64", "ranks", 64, 64, 0);
  expect("mesh of 64", "rank at dp 1, pp 1, tp 0", 20, 20, 0);
  expect("communication patterns", "tensor groups", 16, 16, 0);
  expect("communication patterns", "pipeline groups", 16, 16, 0);
  expect("communication patterns", "data groups", 1, 16, 0);
  expect("communication patterns", "sums of a layer and microbatch", 2, 4, 0);
}

TEST(SeedFigures, RecommendedMeshesDoNotFit) {
  const std::string first = "recommendation 1";
  expect(first, "memory of its mesh, ZeRO-0", 52.5, 317.5);
  expect(first, "memory of its mesh, ZeRO-1", 52.5, 132.3);
  expect(first, "memory of its mesh, ZeRO-3", 52.5, 39.7);
  const std::string second = "recommendation 2";
  expect(second, "memory of its mesh, ZeRO-0", 32.8, 196.9);
  expect(second, "memory of its mesh, ZeRO-1", 32.8, 82.0);
}

TEST(SeedFigures, ChosenPlansFillTheCardsAndFit) {
  for (const auto& [name, cards] :
       {std::pair("recommendation 1", 32), std::pair("recommendation 2", 128), std::pair("memory-constrained", 32),
        std::pair("throughput-optimized", 32), std::pair("latency-optimized", 32)}) {
    const double ranks =
        *figure(name, "tp").corrected * *figure(name, "pp").corrected * *figure(name, "replicas").corrected;
    EXPECT_EQ(ranks, cards) << name;
    EXPECT_LT(*figure(name, "memory of the chosen plan").corrected, 85.0) << name;
  }
}

TEST(SeedFigures, MemoryOfItsExample) {
  const std::string name = "memory of Llama";
  expect(name, "parameters", 17.5, 17.64, 0.005);
  expect(name, "gradients", std::nullopt, 35.28, 0.005);
  expect(name, "optimizer", 35, 105.8);
  expect(name, "optimizer, ZeRO-1 on 4 replicas", 35, 26.5);
  expect(name, "activations", 10.74, 54.4, 0.06);
  expect(name, "KV cache", 0.54, 2.68, 0.005);
  expect(name, "KV cache without shared heads", 0.54, 21.47, 0.005);
  expect(name, "inference", 28.77, 20.32, 0.01);
  expect(name, "training states", std::nullopt, 158.7);
  expect(name, "training states, ZeRO-1 on 4 replicas", std::nullopt, 79.4);
  expect(name, "training", 63.8, 213.1);
  expect(name, "training, ZeRO-1 on 4 replicas", 63.8, 133.7);
  EXPECT_GT(*figure(name, "training here, worst rank, ZeRO-0 on 4 replicas").corrected, 213.1);
  EXPECT_GT(*figure(name, "training here, worst rank, ZeRO-1 on 4 replicas").corrected, 133.7);
}

TEST(SeedFigures, VolumesOfItsExample) {
  const std::string name = "communication of Llama";
  expect(name, "TP, 32 rows per replica", 343.6, 257.7);
  expect(name, "TP, 32 rows in all", 343.6, 64.4);
  expect(name, "PP", 1.07, 2.15, 0.005);
  expect(name, "PP, each tp rank its part", 1.07, 0.54, 0.005);
  expect(name, "DP, bfloat16 gradients", 280, 26.5);
  expect(name, "DP, float32 gradients", 280, 52.9);
  expect(name, "DP on one replica", 280, 0, 0);
  double shares = 0;
  for (const char* axis : {"share of TP", "share of PP", "share of DP"}) shares += *figure(name, axis).corrected;
  EXPECT_NEAR(shares, 100, 1e-9);
}

TEST(SeedFigures, EfficienciesFollowTheModel) {
  const std::string name = "scaling efficiency";
  const auto both = [&](const std::string& quantity) {
    return std::pair(*figure(name, quantity).seed, *figure(name, quantity).corrected);
  };
  const auto [seed2, tp2] = both("tp 2, pp 1, dp 1, 4 microbatches");
  const auto [seed4, tp4] = both("tp 4, pp 1, dp 1, 4 microbatches");
  EXPECT_NEAR(seed2, 85.5, 1e-9);
  EXPECT_EQ(seed2, seed4);
  EXPECT_GT(tp2, tp4);
  const auto [seed_replicas, replicas] = both("tp 4, pp 2, dp 2, 8 microbatches");
  const auto [seed_alone, alone] = both("tp 4, pp 2, dp 1, 8 microbatches");
  EXPECT_NEAR(seed_alone, 76, 1e-9);
  EXPECT_EQ(seed_replicas, seed_alone);
  EXPECT_GE(alone, replicas);
  expect(name, "one card", 95, 100, 1e-9);
  for (const SeedFigure& one : example(name).figures) {
    EXPECT_GT(*one.corrected, 20) << one.quantity;
    EXPECT_LE(*one.corrected, 100 + 1e-9) << one.quantity;
  }
}

TEST(SeedFigures, ServingFitsAsItIsConfigured) {
  expect("serving", "GPUs", 8, 8, 0);
  EXPECT_EQ(figure("serving", "memory, 128 sequences of 4096").why, "fits");
  EXPECT_GE(*figure("serving", "largest batch at 4096 tokens").corrected, 128);
}

// Prints the page that docs/planner_seed001.md explains.
TEST(SeedFigures, AreShownBesideEachOther) {
  const std::string text = seed_text(page());
  std::cout << text;
  for (const SeedExample& one : page()) {
    EXPECT_NE(text.find(one.name + "\n  " + one.call), std::string::npos) << one.name;
    for (const SeedFigure& figure : one.figures) EXPECT_NE(text.find(figure.quantity), std::string::npos);
  }
  EXPECT_NE(text.find("as printed: NameError: name 'math' is not defined; figures are of what was meant"),
            std::string::npos);
}

}  // namespace seed_figures_test
}  // namespace orthant
