#include "orthant/mesh/hosts.h"

#include <gtest/gtest.h>

#include "mesh/thrown_error.h"

namespace orthant {
namespace hosts_test {

TEST(Hosts, RanksFillHostsInBlocks) {
  EXPECT_EQ(host_of(7, 8), 0);
  EXPECT_EQ(host_of(8, 8), 1);
  EXPECT_EQ(num_hosts(16, 8), 2);
  EXPECT_EQ(num_hosts(17, 8), 3);
  EXPECT_EQ(num_hosts(1, 8), 1);
}

TEST(Hosts, GroupSpansHostsWhenItsRanksDiffer) {
  EXPECT_FALSE(spans_hosts(RankList{0, 3, 7}, 8));
  EXPECT_TRUE(spans_hosts(RankList{7, 8}, 8));
  EXPECT_FALSE(spans_hosts(RankList{}, 8));
}

AxisSet axes_crossing_hosts(const Mesh& mesh, int ranks_per_host) {
  AxisSet crossing;
  for (const Axis axis : mesh.active_axes()) {
    if (crosses_hosts(mesh, axis, ranks_per_host)) crossing = crossing | axis;
  }
  return crossing;
}

TEST(Hosts, OuterAxesCrossFirst) {
  EXPECT_EQ(axes_crossing_hosts(Mesh::parse("pp=2,dp=4,tp=2"), 8), Axis::pp);
  EXPECT_EQ(axes_crossing_hosts(Mesh::parse("pp=2,dp=4,tp=2"), 4), (AxisSet{Axis::pp, Axis::dp}));
  EXPECT_EQ(axes_crossing_hosts(Mesh::parse("pp=2,dp=4,tp=2", "tp,dp,pp"), 8), Axis::tp);
  EXPECT_EQ(axes_crossing_hosts(Mesh::parse("pp=2,dp=4,tp=2"), 16), AxisSet());
  EXPECT_EQ(axes_crossing_hosts(Mesh::parse("dp=4,tp=2,ep=4"), 2), (AxisSet{Axis::dp, Axis::ep}));
}

TEST(Hosts, GroupsThatFitSometimesStillCross) {
  EXPECT_TRUE(crosses_hosts(Mesh::parse("dp=4,tp=3"), Axis::tp, 4));
}

TEST(Hosts, RefusesHostsWithoutRanks) {
  EXPECT_EQ(test::thrown_text([] { host_of(0, 0); }),
            "0 ranks per host: a host has at least one\n"
            "set the ranks per host to the number of devices of one machine, such as 8");
  EXPECT_THROW(num_hosts(8, -1), ConfigError);
  EXPECT_THROW(crosses_hosts(Mesh::parse("dp=2"), Axis::dp, 0), ConfigError);
}

}  // namespace hosts_test
}  // namespace orthant
