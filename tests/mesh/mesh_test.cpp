#include "orthant/mesh/mesh.h"

#include <gtest/gtest.h>

#include <limits>

#include "mesh/thrown_error.h"

namespace orthant {
namespace mesh_test {

using test::thrown_text;
using Groups = std::vector<RankList>;

TEST(Mesh, OneRankIsItsOwnGroupOnEveryAxis) {
  const Mesh mesh;
  EXPECT_EQ(mesh.world_size(), 1);
  EXPECT_TRUE(mesh.active_axes().empty());
  for (Axis axis : kAxes) EXPECT_EQ(mesh.groups(axis), (Groups{{0}}));
  EXPECT_EQ(mesh.neighbour(0, Axis::pp, 1), std::nullopt);
}

TEST(Mesh, InnermostAxisChangesFastest) {
  const Mesh mesh = Mesh::parse("pp=2,dp=2,tp=2");
  const Coordinate place = mesh.coordinate(5);
  EXPECT_EQ(place[Axis::pp], 1);
  EXPECT_EQ(place[Axis::dp], 0);
  EXPECT_EQ(place[Axis::tp], 1);
  EXPECT_EQ(mesh.groups(Axis::tp), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.groups(Axis::dp), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups(Axis::pp), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Mesh, SeveralAxesFormOneFlatGroup) {
  const Mesh mesh = Mesh::parse("dp=2,fsdp=2,tp=2");
  EXPECT_EQ(mesh.groups({Axis::dp, Axis::fsdp}), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(mesh.groups(kMeshAxes), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(mesh.groups(AxisSet()).size(), 8U);
  EXPECT_EQ(mesh.group_of(5, {Axis::dp, Axis::fsdp}), (RankList{1, 3, 5, 7}));
  EXPECT_EQ(mesh.index_in_group(5, {Axis::dp, Axis::fsdp}), 2);
  EXPECT_EQ(mesh.num_groups({Axis::dp, Axis::fsdp}), 2);
}

TEST(Mesh, NeighboursEndAtBothEnds) {
  const Mesh mesh = Mesh::parse("pp=4,tp=2");
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, 1), 5);
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, -1), 1);
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, 0), 3);
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, -2), std::nullopt);
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, std::numeric_limits<int>::max()), std::nullopt);
  EXPECT_EQ(mesh.neighbour(3, Axis::pp, std::numeric_limits<int>::min()), std::nullopt);
}

TEST(Mesh, LargestMeshIsQuickToAsk) {
  const Mesh mesh = Mesh::parse("pp=16,dp=256,fsdp=8,cp=4,tp=8");
  EXPECT_EQ(mesh.world_size(), Mesh::kMaxRanks);
  EXPECT_EQ(mesh.groups(Axis::tp).size(), 131072U);
  EXPECT_EQ(mesh.rank_of(mesh.coordinate(Mesh::kMaxRanks - 1)), Mesh::kMaxRanks - 1);
}

TEST(Mesh, RefusesRanksAndCoordinatesOutsideIt) {
  const Mesh mesh = Mesh::parse("pp=2,tp=2");
  for (int rank : {-1, 4, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    EXPECT_THROW(mesh.coordinate(rank), InternalError);
    EXPECT_THROW(mesh.group_of(rank, Axis::tp), InternalError);
    EXPECT_THROW(mesh.neighbour(rank, Axis::pp, 1), InternalError);
    EXPECT_THROW(mesh.expert_coordinate(rank), InternalError);
  }
  EXPECT_EQ(thrown_text<InternalError>([&] { mesh.coordinate(4); }),
            "rank 4 is not on mesh pp=2,tp=2, which has ranks 0 to 3\n");
  Coordinate outside;
  outside[Axis::tp] = 2;
  EXPECT_EQ(thrown_text<InternalError>([&] { mesh.rank_of(outside); }),
            "coordinate tp=2 is not on mesh pp=2,tp=2, where tp has degree 2\n");
}

TEST(Mesh, RefusesGroupsOverEpAndOtherAxes) {
  const Mesh mesh = Mesh::parse("dp=4,ep=2");
  EXPECT_EQ(thrown_text([&] { mesh.groups({Axis::dp, Axis::ep}); }),
            "no groups over dp+ep: ep is a second view of the same ranks\nask for ep alone or for dp");
  EXPECT_THROW(mesh.group_of(0, {Axis::dp, Axis::ep}), ConfigError);
}

TEST(ExpertView, RunsOfConsecutiveRanksShareTheExperts) {
  const Mesh mesh = Mesh::parse("pp=2,dp=2,tp=2,ep=2");
  EXPECT_EQ(mesh.groups(Axis::ep), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(mesh.expert_replica_groups(), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.expert_coordinate(3), (ExpertCoordinate{.replica = 1, .ep = 1}));
  EXPECT_EQ(mesh.neighbour(2, Axis::ep, 1), 3);
  EXPECT_EQ(mesh.neighbour(1, Axis::ep, 1), std::nullopt);
}

TEST(ExpertView, NeverMixesStagesWhenPipelineIsInnermost) {
  const Mesh mesh = Mesh::parse("pp=2,dp=4,ep=2", "dp,pp");
  EXPECT_EQ(mesh.groups(Axis::ep), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.expert_replica_groups(), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(ExpertView, MayCutAcrossTheAxesOfAStage) {
  const Mesh mesh = Mesh::parse("fsdp=3,tp=2,ep=3");
  EXPECT_EQ(mesh.groups(Axis::ep), (Groups{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(mesh.num_expert_replicas(), 2);
}

TEST(ExpertView, DoesNotChangeTheWorldOrTheOtherGroups) {
  const Mesh dense = Mesh::parse("dp=4,tp=2");
  const Mesh expert = Mesh::parse("dp=4,tp=2,ep=8");
  EXPECT_EQ(expert.world_size(), dense.world_size());
  EXPECT_EQ(expert.groups(Axis::tp), dense.groups(Axis::tp));
}

}  // namespace mesh_test
}  // namespace orthant
