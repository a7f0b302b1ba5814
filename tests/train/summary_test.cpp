#include "orthant/train/summary.h"

#include <gtest/gtest.h>

namespace orthant {
namespace summary_test {

UnitSpec unit(std::string name, std::string kind, std::int64_t parameters, std::array<std::int64_t, 3> kept = {}) {
  UnitSpec result;
  result.name = std::move(name);
  result.kind = std::move(kind);
  result.parameters.push_back({.name = result.name + ".weight", .shape = {parameters}});
  result.cost.kept_bytes = kept;
  return result;
}

UnitSpec layer(int index) {
  UnitSpec result = unit("layers." + std::to_string(index), "llama.layer", 1000, {4096, 2048, 512});
  result.recomputable = true;
  return result;
}

// An embedding, eight equal layers, a head.
GraphSpec chain() {
  GraphSpec graph;
  graph.name = "llama";
  graph.units.push_back(unit("embedding", "llama.embedding", 500, {64, 64, 64}));
  for (int i = 0; i < 8; ++i) graph.units.push_back(layer(i));
  graph.units.push_back(unit("head", "llama.head", 500, {1024, 1024, 1024}));
  return graph;
}

TEST(Summary, FoldsRunsOfEqualLayers) {
  const auto rows = summary_rows(chain(), {});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].name, "layers.0-7");
  EXPECT_EQ(rows[1].num_units, 8);
  EXPECT_EQ(rows[1].parameters, 8000);
  EXPECT_EQ(rows[1].parameters_bytes, 32000);
  EXPECT_EQ(rows[1].gradients_bytes, 32000);
  EXPECT_EQ(rows[1].optimizer_bytes, 64000);
  EXPECT_EQ(rows[1].kept_bytes, 8 * 4096);
  EXPECT_EQ(rows[0].name, "embedding");
  EXPECT_EQ(rows[2].name, "head");
}

TEST(Summary, KeptBytesFollowTheRecomputeModeWhereAUnitAllowsIt) {
  const auto full = summary_rows(chain(), {.recompute = Recompute::full, .microbatches_in_flight = 3});
  EXPECT_EQ(full[0].kept_bytes, 3 * 64);
  EXPECT_EQ(full[1].kept_bytes, 3 * 8 * 512);
  EXPECT_EQ(full[2].kept_bytes, 3 * 1024);
  const auto selective = summary_rows(chain(), {.recompute = Recompute::selective});
  EXPECT_EQ(selective[1].kept_bytes, 8 * 2048);
  GraphSpec fixed = chain();
  for (UnitSpec& each : fixed.units) each.recomputable = false;
  EXPECT_EQ(summary_rows(fixed, {.recompute = Recompute::full})[1].kept_bytes, 8 * 4096);
}

TEST(Summary, BytesFollowTheDtypes) {
  const auto rows = summary_rows(
      chain(),
      {.parameters = DType::float32, .compute = DType::bfloat16, .gradients = DType::bfloat16, .optimizer_copies = 1});
  EXPECT_EQ(rows[1].parameters_bytes, 8000 * (4 + 2)) << "the master copy and the one that is multiplied";
  EXPECT_EQ(rows[1].gradients_bytes, 8000 * 2);
  EXPECT_EQ(rows[1].optimizer_bytes, 8000 * 4) << "in the master copy's dtype";
  EXPECT_EQ(rows[1].total_bytes(), 8000 * (4 + 2 + 2 + 4) + 8 * 4096);
}

TEST(Summary, FrozenParametersHaveNoGradientAndNoState) {
  GraphSpec graph = chain();
  graph.units[0].parameters[0].trainable = false;
  const SummaryRow row = summary_rows(graph, {})[0];
  EXPECT_EQ(row.parameters, 500);
  EXPECT_EQ(row.trainable, 0);
  EXPECT_EQ(row.parameters_bytes, 2000);
  EXPECT_EQ(row.gradients_bytes, 0);
  EXPECT_EQ(row.optimizer_bytes, 0);
}

TEST(Summary, ALayerThatDiffersEndsTheRun) {
  GraphSpec graph = chain();
  graph.units[4].parameters[0].trainable = false;  // layers.3
  const auto rows = summary_rows(graph, {});
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[1].name, "layers.0-2");
  EXPECT_EQ(rows[2].name, "layers.3");
  EXPECT_EQ(rows[3].name, "layers.4-7");
}

TEST(Summary, FoldsByOneNumberOnly) {
  GraphSpec graph;
  for (const char* name : {"towers.0.layers.0", "towers.0.layers.1", "towers.1.layers.0", "towers.1.layers.1"}) {
    graph.units.push_back(unit(name, "bert.layer", 10));
  }
  const auto rows = summary_rows(graph, {});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "towers.0.layers.0-1");
  EXPECT_EQ(rows[1].name, "towers.1.layers.0-1");
}

TEST(Summary, FoldsANumberInTheMiddleAndIgnoresGaps) {
  GraphSpec graph;
  for (const char* name : {"block.1.norm", "block.2.norm", "block.4.norm", "w2v"}) {
    graph.units.push_back(unit(name, "norm", 10));
  }
  const auto rows = summary_rows(graph, {});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name, "block.1-2.norm");
  EXPECT_EQ(rows[1].name, "block.4.norm");
  EXPECT_EQ(rows[2].name, "w2v");
}

TEST(Summary, TextIsATableWithTotals) {
  EXPECT_EQ(summary_text(chain(), {.microbatches_in_flight = 2}),
            "model llama: 10 units on one rank, recompute none, 2 microbatches in flight\n"
            "unit            parameters  trainable   weights  gradients  optimizer  activations   together\n"
            "embedding              500        500     2 KiB      2 KiB    3.9 KiB        128 B    7.9 KiB\n"
            "layers.0-7  x8          8K         8K  31.2 KiB   31.2 KiB   62.5 KiB       64 KiB    189 KiB\n"
            "head                   500        500     2 KiB      2 KiB    3.9 KiB        2 KiB    9.8 KiB\n"
            "total                   9K         9K  35.2 KiB   35.2 KiB   70.3 KiB     66.1 KiB  206.8 KiB\n");
}

}  // namespace summary_test
}  // namespace orthant
