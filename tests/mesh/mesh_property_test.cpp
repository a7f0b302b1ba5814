// What holds for every mesh, tried on many random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mesh/random_mesh.h"

namespace orthant {
namespace mesh_property_test {

using test::RandomMeshes;

constexpr int kMeshes = 300;

// Every rank of the world occurs in exactly one group, groups are ascending and ordered by their first rank.
void expect_partition(const Mesh& mesh, const std::vector<RankList>& groups) {
  std::vector<int> seen;
  int previous_first = -1;
  for (const RankList& group : groups) {
    EXPECT_EQ(group.size(), groups.front().size());
    EXPECT_TRUE(std::ranges::is_sorted(group));
    EXPECT_GT(group.front(), previous_first);
    previous_first = group.front();
    seen.insert(seen.end(), group.begin(), group.end());
  }
  std::ranges::sort(seen);
  ASSERT_EQ(static_cast<int>(seen.size()), mesh.world_size());
  for (int rank = 0; rank < mesh.world_size(); ++rank) EXPECT_EQ(seen[rank], rank);
}

TEST(MeshProperty, CoordinatesAndRanksAreInverse) {
  RandomMeshes meshes(1);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    SCOPED_TRACE(mesh.to_string());
    int world_size = 1;
    for (Axis axis : kMeshAxes) world_size *= mesh.degree(axis);
    ASSERT_EQ(mesh.world_size(), world_size);
    for (int rank = 0; rank < world_size; ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinate(rank)), rank);
  }
}

TEST(MeshProperty, RanksCountThroughCoordinatesInOrder) {
  RandomMeshes meshes(2);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    SCOPED_TRACE(mesh.to_string());
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      int counted = 0;
      for (Axis axis : mesh.order()) counted = counted * mesh.degree(axis) + mesh.coordinate(rank)[axis];
      ASSERT_EQ(counted, rank);
    }
  }
}

TEST(MeshProperty, GroupsPartitionTheWorldAndDifferOnlyInTheirAxes) {
  RandomMeshes meshes(3);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    const AxisSet axes = meshes.next_axes();
    SCOPED_TRACE(mesh.to_string() + " over " + axes.name());
    const auto groups = mesh.groups(axes);
    expect_partition(mesh, groups);
    EXPECT_EQ(static_cast<int>(groups.size()), mesh.num_groups(axes));
    for (const RankList& group : groups) {
      ASSERT_EQ(static_cast<int>(group.size()), mesh.group_size(axes));
      for (std::size_t place = 0; place < group.size(); ++place) {
        EXPECT_EQ(mesh.group_of(group[place], axes), group);
        EXPECT_EQ(mesh.index_in_group(group[place], axes), static_cast<int>(place));
        for (Axis axis : kMeshAxes - axes) {
          EXPECT_EQ(mesh.coordinate(group[place])[axis], mesh.coordinate(group.front())[axis]);
        }
      }
    }
  }
}

TEST(MeshProperty, GroupsOfDisjointAxesMeetInAtMostOneRank) {
  RandomMeshes meshes(4);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    const AxisSet left = meshes.next_axes();
    const AxisSet right = meshes.next_axes() - left;
    SCOPED_TRACE(mesh.to_string() + " over " + left.name() + " and " + right.name());
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      RankList both;
      std::ranges::set_intersection(mesh.group_of(rank, left), mesh.group_of(rank, right), std::back_inserter(both));
      ASSERT_EQ(both, RankList{rank});
    }
  }
}

TEST(MeshProperty, NeighboursAreInverse) {
  RandomMeshes meshes(5);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    SCOPED_TRACE(mesh.to_string());
    for (Axis axis : kAxes) {
      const int offset = 1 + meshes.below(3);
      int without = 0;
      for (int rank = 0; rank < mesh.world_size(); ++rank) {
        const auto next = mesh.neighbour(rank, axis, offset);
        if (next) {
          EXPECT_EQ(mesh.neighbour(*next, axis, -offset), rank);
        } else {
          ++without;
        }
      }
      EXPECT_EQ(without, mesh.num_groups(axis) * std::min(offset, mesh.degree(axis)));
    }
  }
}

TEST(MeshProperty, TextParsesBack) {
  RandomMeshes meshes(6);
  for (int i = 0; i < 10 * kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    const Mesh again = Mesh::parse(mesh.to_string());
    EXPECT_EQ(again, mesh) << mesh.to_string();
    EXPECT_EQ(std::hash<Mesh>()(again), std::hash<Mesh>()(mesh));
  }
}

TEST(MeshProperty, ExpertViewPartitionsEveryStage) {
  RandomMeshes meshes(8);
  for (int i = 0; i < kMeshes; ++i) {
    const Mesh mesh = meshes.next();
    SCOPED_TRACE(mesh.to_string());
    const auto experts = mesh.groups(Axis::ep);
    const auto replicas = mesh.expert_replica_groups();
    expect_partition(mesh, experts);
    expect_partition(mesh, replicas);
    EXPECT_EQ(static_cast<int>(experts.front().size()), mesh.degree(Axis::ep));
    EXPECT_EQ(static_cast<int>(replicas.front().size()), mesh.num_expert_replicas());
    for (const RankList& group : experts) {
      for (int rank : group) {
        EXPECT_EQ(mesh.coordinate(rank)[Axis::pp], mesh.coordinate(group.front())[Axis::pp]);
        EXPECT_EQ(mesh.group_of(rank, Axis::ep), group);
      }
    }
    for (const RankList& group : replicas) {
      for (int rank : group) {
        EXPECT_EQ(mesh.expert_coordinate(rank).ep, mesh.expert_coordinate(group.front()).ep);
        EXPECT_EQ(mesh.coordinate(rank)[Axis::pp], mesh.coordinate(group.front())[Axis::pp]);
        EXPECT_EQ(mesh.expert_replica_group_of(rank), group);
      }
    }
  }
}

}  // namespace mesh_property_test
}  // namespace orthant
