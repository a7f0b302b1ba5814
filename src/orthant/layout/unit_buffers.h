// The flat buffers of a graph as one rank holds them, by the units that read and reduce them: what the runtime
// exchanges and the planner prices. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

struct UnitBuffers {
  std::vector<FlatBuffer> all;         // by owner: those that units of the rank use
  std::vector<std::vector<int>> used;  // per unit: those it reads, own and tied; none for units of other ranks
  // Per unit: trainable ones whose gradients it reduces, as the lowest unit of the rank that uses them: the same units
  // as in Note [Reduce] of schedule/lowering.h.
  std::vector<std::vector<int>> held;
  std::vector<int> unit_groups;            // per unit, see unit_groups.h
  std::vector<std::vector<int>> pp_users;  // per buffer: the pp coordinates that use it, ascending; several when tied
  std::vector<bool> owner_here;            // per buffer: its owner is here, so that this pp coordinate counts it

  const FlatBuffer& operator[](int buffer) const { return all[static_cast<std::size_t>(buffer)]; }
  std::int64_t elements(const std::vector<int>& buffers) const;  // with padding

  // The same numbers of buffers; units use and hold those of experts on a mesh of their own alone, or the others alone.
  UnitBuffers only(bool experts) const;
};

// `unit_groups` may be empty: every unit alone. `unit_pp_coordinates` is the pp coordinate of each unit; empty: one
// stage.
UnitBuffers unit_buffers(const GraphSpec& graph, const Mesh& mesh, const Coordinate& coordinate,
                         const std::vector<int>& unit_groups, const std::vector<int>& unit_pp_coordinates = {});

// Whether a unit runs at that pp coordinate.
inline bool runs_at(int unit, const std::vector<int>& unit_pp_coordinates, int pp) {
  return unit_pp_coordinates.empty() || unit_pp_coordinates[static_cast<std::size_t>(unit)] == pp;
}

// The sets of pp coordinates, ascending and several each, whose ranks use a tied trainable parameter together.
std::vector<std::vector<int>> tied_user_sets(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates);

}  // namespace orthant
