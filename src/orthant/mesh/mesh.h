// The mesh: how the ranks of a job are laid out on the axes of parallelism. An immutable value; every other layer asks
// it who communicates with whom, and nothing here communicates. All methods are Local and answer alike on every rank.
//
// Note [Expert view]: ep factorises the same ranks a second time, for expert parameters only. The ranks of one pp
// stage, in ascending order, are cut into runs of `ep` ranks: a run is an ep group and holds each expert once; ranks at
// the same place in their runs are expert replicas (`edp`), over which expert gradients are summed. So stage ranks =
// edp x ep with ep innermost, whatever the axes of the stage are, and ep must divide world_size / pp. Two stages never
// share an ep group.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/mesh/axis.h"
#include "orthant/mesh/axis_order.h"

namespace orthant {

// Degrees as users give them, not yet checked. Axes left out have degree 1.
using Degrees = std::map<Axis, std::int64_t>;

// A position on the mesh: one index per axis but ep.
class Coordinate {
 public:
  int& operator[](Axis axis) { return at_.at(static_cast<std::size_t>(axis)); }
  int operator[](Axis axis) const { return at_.at(static_cast<std::size_t>(axis)); }
  friend bool operator==(const Coordinate&, const Coordinate&) = default;

 private:
  std::array<int, 5> at_ = {};
};

// A position in the expert view of a stage.
struct ExpertCoordinate {
  int replica = 0;  // which copy of the experts
  int ep = 0;       // which part of them
  friend bool operator==(const ExpertCoordinate&, const ExpertCoordinate&) = default;
};

// Global ranks in ascending order.
using RankList = std::vector<int>;

class Mesh {
 public:
  // More ranks than this are taken for a mistake.
  static constexpr int kMaxRanks = 1 << 20;

  // One rank.
  Mesh() : Mesh(Degrees{}) {}

  // `order` as for parse_order. ConfigError on degrees below 1, too many ranks, a wrong order, or an ep that does not
  // divide the ranks of a stage.
  explicit Mesh(const Degrees& degrees, std::string_view order = "");

  // Reads "pp=2,tp=2,dp=4", axes in any order, blanks allowed. The text may hold the order as a field "order=pp:tp:dp",
  // as to_string() writes it; when `order` is given too they must agree. ConfigError on anything else.
  static Mesh parse(std::string_view text, std::string_view order = "");

  // As the constructor, but the degree of `axis` is whatever makes the mesh fill `world_size` ranks; one that is given
  // for it is ignored. ConfigError when the other degrees do not divide the world, or when `axis` is ep.
  static Mesh inferred(Degrees degrees, Axis axis, int world_size, std::string_view order = "");
  Mesh with_inferred(Axis axis, int world_size) const;

  int world_size() const { return world_size_; }
  int degree(Axis axis) const { return degrees_[static_cast<std::size_t>(axis)]; }
  Degrees degrees() const;  // all six
  const AxisOrder& order() const { return order_; }
  AxisSet active_axes() const;  // those of degree above 1, ep included

  // ConfigError when the mesh does not fill exactly `world_size` ranks; its remedy is the nearest mesh that does.
  void check_world(int world_size) const;

  Coordinate coordinate(int rank) const;
  int rank_of(const Coordinate& coordinate) const;

  // A group over `axes` is the set of ranks that differ only in those axes: several axes are one flat group. groups()
  // lists all of them by their first rank. ep stands alone: ConfigError when it is combined with another axis.
  std::vector<RankList> groups(AxisSet axes) const;
  RankList group_of(int rank, AxisSet axes) const;
  int group_size(AxisSet axes) const;
  int num_groups(AxisSet axes) const { return world_size_ / group_size(axes); }
  // Place of `rank` in group_of(rank, axes).
  int index_in_group(int rank, AxisSet axes) const;

  // The rank `offset` steps further on `axis`; nothing beyond either end (axes are lines here, not rings).
  std::optional<int> neighbour(int rank, Axis axis, int offset) const;

  // See Note [Expert view]. Groups over ep itself are groups(Axis::ep).
  int stage_size() const { return world_size_ / degree(Axis::pp); }
  int num_expert_replicas() const { return stage_size() / degree(Axis::ep); }
  ExpertCoordinate expert_coordinate(int rank) const;
  std::vector<RankList> expert_replica_groups() const;
  RankList expert_replica_group_of(int rank) const;

  // "pp=2,dp=4,tp=2" in canonical order without degrees of 1 ("dp=1" for one rank), then the order when it is not the
  // default. parse(to_string()) is this mesh.
  std::string to_string() const;

  // Same degrees and same order, also of axes of degree 1.
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  void check_rank(int rank) const;
  int stride(Axis axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  // Distances of a group's members from its first rank, ascending. `axes` without ep.
  std::vector<int> offsets(AxisSet axes) const;
  int first_of_group(int rank, AxisSet axes) const;
  // All ep groups, or all groups of expert replicas.
  std::vector<RankList> expert_groups(bool replicas) const;

  std::array<int, 6> degrees_ = {};
  std::array<int, 5> strides_ = {};
  AxisOrder order_ = kDefaultOrder;
  int world_size_ = 1;
};

}  // namespace orthant

template <>
struct std::hash<orthant::Mesh> {
  std::size_t operator()(const orthant::Mesh& mesh) const noexcept;
};
