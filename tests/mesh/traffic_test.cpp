#include "orthant/mesh/traffic.h"

#include <gtest/gtest.h>

#include <array>

namespace orthant {
namespace traffic_test {

// A row of seed 001's table of communication patterns.
struct PatternRow {
  std::string axis;
  int groups, size;
  std::string pattern, frequency, data_size;
  BandwidthNeed bandwidth;
};

// The seed prints one group for data parallelism; each pair of stage and tensor slice has its own, hence tp x pp.
std::vector<PatternRow> pattern_table(int dp, int tp, int pp) {
  return {{"tp", dp * pp, tp, "all-reduce", "2x per layer", "micro_batch x seq_len x hidden_dim", BandwidthNeed::high},
          {"pp", dp * tp, pp, "send/receive", "1x per microbatch", "micro_batch x seq_len x hidden_dim",
           BandwidthNeed::medium},
          {"dp", tp * pp, dp, "all-reduce", "1x per step", "model_parameters", BandwidthNeed::low}};
}

TEST(Traffic, ReproducesThePatternTableOfThreeAxes) {
  for (const auto& [dp, tp, pp] : {std::array{2, 2, 2}, std::array{4, 2, 2}, std::array{4, 4, 4}}) {
    const Mesh mesh({{Axis::dp, dp}, {Axis::tp, tp}, {Axis::pp, pp}}, "dp,pp,tp");
    const std::vector<Traffic> found = traffic(mesh, 8);
    const std::vector<PatternRow> expected = pattern_table(dp, tp, pp);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].axis, expected[i].axis);
      EXPECT_EQ(found[i].num_groups, expected[i].groups);
      EXPECT_EQ(found[i].group_size, expected[i].size);
      EXPECT_EQ(found[i].pattern, expected[i].pattern);
      EXPECT_TRUE(found[i].frequency.starts_with(expected[i].frequency)) << found[i].frequency;
      EXPECT_TRUE(found[i].data_size.starts_with("O(" + expected[i].data_size)) << found[i].data_size;
      EXPECT_EQ(found[i].bandwidth, expected[i].bandwidth);
    }
  }
}

TEST(Traffic, CountsTheGroupsThatExist) {
  const Mesh mesh = Mesh::parse("pp=2,dp=2,fsdp=2,cp=2,tp=2,ep=4");
  const std::vector<Traffic> rows = traffic(mesh, 8);
  std::string axes;
  for (const Traffic& row : rows) {
    axes += row.axis + " ";
    const auto groups = row.axis == "edp" ? mesh.expert_replica_groups() : mesh.groups(AxisSet::parse(row.axis));
    EXPECT_EQ(row.num_groups, static_cast<int>(groups.size())) << row.axis;
    EXPECT_EQ(row.group_size, static_cast<int>(groups.front().size())) << row.axis;
  }
  EXPECT_EQ(axes, "tp cp ep fsdp pp dp edp ");
}

TEST(Traffic, SaysWhichAxesCrossHosts) {
  for (const Traffic& row : traffic(Mesh::parse("pp=2,dp=2,tp=4,ep=2"), 8)) {
    EXPECT_EQ(row.crosses_hosts, row.axis == "pp") << row.axis;
  }
  for (const Traffic& row : traffic(Mesh::parse("dp=4,tp=2,ep=2"), 2)) {
    EXPECT_EQ(row.crosses_hosts, row.axis == "dp" || row.axis == "edp") << row.axis;
  }
}

TEST(Traffic, GradientsAreAShareOfTheModel) {
  EXPECT_EQ(traffic(Mesh::parse("dp=2"), 8).back().data_size, "O(model_parameters)");
  EXPECT_EQ(traffic(Mesh::parse("dp=2,tp=2"), 8).back().data_size, "O(model_parameters / tp)");
  EXPECT_EQ(traffic(Mesh::parse("dp=2,tp=2,pp=2"), 8).back().data_size, "O(model_parameters / (pp x tp))");
}

TEST(Traffic, IsEmptyForOneRank) {
  EXPECT_TRUE(traffic(Mesh(), 8).empty());
}

}  // namespace traffic_test
}  // namespace orthant
