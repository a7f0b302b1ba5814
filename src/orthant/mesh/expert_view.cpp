// The expert view of a mesh. See Note [Expert view] in mesh.h.
#include <algorithm>

#include "orthant/mesh/mesh.h"

namespace orthant {

ExpertCoordinate Mesh::expert_coordinate(int rank) const {
  const int index = index_in_group(rank, kMeshAxes - Axis::pp);
  return {index / degree(Axis::ep), index % degree(Axis::ep)};
}

std::vector<RankList> Mesh::expert_groups(bool replicas) const {
  const int ep = degree(Axis::ep);
  std::vector<RankList> all;
  all.reserve(world_size_ / (replicas ? num_expert_replicas() : ep));
  for (const RankList& stage : groups(kMeshAxes - Axis::pp)) {
    const std::size_t first = all.size();
    all.resize(first + (replicas ? ep : num_expert_replicas()));
    for (int i = 0; i < stage_size(); ++i) all[first + (replicas ? i % ep : i / ep)].push_back(stage[i]);
  }
  // Stages interleave when pp is not the outermost axis.
  std::ranges::sort(all, {}, [](const RankList& group) { return group.front(); });
  return all;
}

std::vector<RankList> Mesh::expert_replica_groups() const {
  return expert_groups(/*replicas=*/true);
}

RankList Mesh::expert_replica_group_of(int rank) const {
  const RankList stage = group_of(rank, kMeshAxes - Axis::pp);
  RankList group;
  for (int i = expert_coordinate(rank).ep; i < stage_size(); i += degree(Axis::ep)) group.push_back(stage[i]);
  return group;
}

}  // namespace orthant
