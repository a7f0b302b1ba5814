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
  std::vector<FlatBuffer> all;         // by owner
  std::vector<std::vector<int>> used;  // per unit: those it reads, own and tied
  std::vector<std::vector<int>> held;  // per unit: trainable ones that it owns, whose gradients it reduces
  std::vector<int> unit_groups;        // per unit, see unit_groups.h

  const FlatBuffer& operator[](int buffer) const { return all[static_cast<std::size_t>(buffer)]; }
  std::int64_t elements(const std::vector<int>& buffers) const;  // with padding
};

// `unit_groups` may be empty: every unit alone.
UnitBuffers unit_buffers(const GraphSpec& graph, const Mesh& mesh, const Coordinate& coordinate,
                         const std::vector<int>& unit_groups);

}  // namespace orthant
