#include "orthant/mesh/mesh.h"

#include <fmt/format.h>

#include <ranges>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/mesh/world_fit.h"

namespace orthant {
namespace {

int checked_degree(Axis axis, std::int64_t degree) {
  const std::string_view name = axis_name(axis);
  if (degree < 1) {
    throw ConfigError(fmt::format("{}={}: a degree must be at least 1", name, degree),
                      {.remedy = fmt::format("set {}=1 or leave {} out", name, name)});
  }
  if (degree > Mesh::kMaxRanks) {
    throw ConfigError(fmt::format("{}={}: a mesh has at most {} ranks", name, degree, Mesh::kMaxRanks),
                      {.remedy = fmt::format("set {} to the number of ranks on that axis", name)});
  }
  return static_cast<int>(degree);
}

void refuse_combined_ep(AxisSet axes) {
  if (!axes.contains(Axis::ep) || axes.size() == 1) return;
  throw ConfigError(fmt::format("no groups over {}: ep is a second view of the same ranks", axes.name()),
                    {.remedy = fmt::format("ask for ep alone or for {}", (axes - Axis::ep).name())});
}

}  // namespace

Mesh::Mesh(const Degrees& degrees, std::string_view order) {
  degrees_.fill(1);
  for (const auto& [axis, degree] : degrees) degrees_[static_cast<std::size_t>(axis)] = checked_degree(axis, degree);
  std::int64_t product = 1;
  for (Axis axis : kMeshAxes) {
    product *= degree(axis);
    if (product > kMaxRanks) {
      throw ConfigError(fmt::format("mesh {} has more than {} ranks", to_string(), kMaxRanks),
                        {.remedy = "lower the degrees: their product is the number of ranks"});
    }
  }
  world_size_ = static_cast<int>(product);
  order_ = parse_order(order, active_axes() - Axis::ep);
  int next = 1;
  for (Axis axis : std::views::reverse(order_)) {
    strides_[static_cast<std::size_t>(axis)] = next;
    next *= degree(axis);
  }
  check_expert_degree(stage_size(), degree(Axis::ep), to_string());
}

Mesh Mesh::inferred(Degrees degrees, Axis axis, int world_size, std::string_view order) {
  degrees[axis] = inferred_degree(degrees, axis, world_size);
  return Mesh(degrees, order);
}

Mesh Mesh::with_inferred(Axis axis, int world_size) const {
  return inferred(degrees(), axis, world_size, order_text(order_));
}

Degrees Mesh::degrees() const {
  Degrees all;
  for (Axis axis : kAxes) all[axis] = degree(axis);
  return all;
}

AxisSet Mesh::active_axes() const {
  AxisSet axes;
  for (Axis axis : kAxes) {
    if (degree(axis) > 1) axes = axes | axis;
  }
  return axes;
}

void Mesh::check_world(int world_size) const {
  check_world_size(world_size);
  if (world_size == world_size_) return;
  throw ConfigError(fmt::format("mesh {} needs {} ranks, but the world has {}", to_string(), world_size_, world_size),
                    {.remedy = fmt::format("set the mesh to {}, or start {} ranks",
                                           nearest_mesh(*this, world_size).to_string(), world_size_)});
}

void Mesh::check_rank(int rank) const {
  if (rank >= 0 && rank < world_size_) return;
  throw InternalError(
      fmt::format("rank {} is not on mesh {}, which has ranks 0 to {}", rank, to_string(), world_size_ - 1));
}

Coordinate Mesh::coordinate(int rank) const {
  check_rank(rank);
  Coordinate place;
  for (Axis axis : kMeshAxes) place[axis] = rank / stride(axis) % degree(axis);
  return place;
}

int Mesh::rank_of(const Coordinate& coordinate) const {
  int rank = 0;
  for (Axis axis : kMeshAxes) {
    const int index = coordinate[axis];
    if (index < 0 || index >= degree(axis)) {
      throw InternalError(fmt::format("coordinate {}={} is not on mesh {}, where {} has degree {}", axis_name(axis),
                                      index, to_string(), axis_name(axis), degree(axis)));
    }
    rank += index * stride(axis);
  }
  return rank;
}

std::vector<int> Mesh::offsets(AxisSet axes) const {
  std::vector<int> distances = {0};
  for (Axis axis : order_) {
    if (!axes.contains(axis) || degree(axis) == 1) continue;
    std::vector<int> finer;
    finer.reserve(distances.size() * degree(axis));
    for (int distance : distances) {
      for (int index = 0; index < degree(axis); ++index) finer.push_back(distance + index * stride(axis));
    }
    distances = std::move(finer);
  }
  return distances;
}

int Mesh::first_of_group(int rank, AxisSet axes) const {
  const Coordinate place = coordinate(rank);
  int first = rank;
  for (Axis axis : axes) first -= place[axis] * stride(axis);
  return first;
}

std::vector<RankList> Mesh::groups(AxisSet axes) const {
  refuse_combined_ep(axes);
  if (axes.contains(Axis::ep)) return expert_groups(/*replicas=*/false);
  const std::vector<int> members = offsets(axes);
  std::vector<RankList> all;
  for (int first : offsets(kMeshAxes - axes)) {
    RankList& group = all.emplace_back(members);
    for (int& rank : group) rank += first;
  }
  return all;
}

RankList Mesh::group_of(int rank, AxisSet axes) const {
  refuse_combined_ep(axes);
  check_rank(rank);
  if (axes.contains(Axis::ep)) {
    const RankList stage = group_of(rank, kMeshAxes - Axis::pp);
    const auto begin = stage.begin() + std::ptrdiff_t{expert_coordinate(rank).replica} * degree(Axis::ep);
    return {begin, begin + degree(Axis::ep)};
  }
  RankList group = offsets(axes);
  const int first = first_of_group(rank, axes);
  for (int& member : group) member += first;
  return group;
}

int Mesh::group_size(AxisSet axes) const {
  refuse_combined_ep(axes);
  int size = 1;
  for (Axis axis : axes) size *= degree(axis);
  return size;
}

int Mesh::index_in_group(int rank, AxisSet axes) const {
  refuse_combined_ep(axes);
  if (axes.contains(Axis::ep)) return expert_coordinate(rank).ep;
  const Coordinate place = coordinate(rank);
  int index = 0;
  for (Axis axis : order_) {
    if (axes.contains(axis)) index = index * degree(axis) + place[axis];
  }
  return index;
}

std::optional<int> Mesh::neighbour(int rank, Axis axis, int offset) const {
  const std::int64_t index = std::int64_t{index_in_group(rank, axis)} + offset;
  if (index < 0 || index >= degree(axis)) return std::nullopt;
  return group_of(rank, axis)[static_cast<std::size_t>(index)];
}

}  // namespace orthant

std::size_t std::hash<orthant::Mesh>::operator()(const orthant::Mesh& mesh) const noexcept {
  std::size_t value = 0;
  const auto mix = [&value](int part) { value = value * 1099511628211U + static_cast<std::size_t>(part); };
  for (orthant::Axis axis : orthant::kAxes) mix(mesh.degree(axis));
  for (orthant::Axis axis : mesh.order()) mix(static_cast<int>(axis));
  return value;
}
