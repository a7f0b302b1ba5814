// The edges of a checked GraphSpec by index, for code that follows them often. Batch fields are on every rank and are
// no edges.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct GraphEdges {
  explicit GraphEdges(const GraphSpec& graph);

  int num_units() const { return static_cast<int>(inputs.size()); }

  std::vector<std::vector<int>> inputs;     // per unit: the values it reads, each once
  std::vector<std::vector<int>> outputs;    // per unit: the values it writes
  std::vector<int> producer;                // per value: the unit that writes it
  std::vector<std::vector<int>> consumers;  // per value: the units that read it, ascending
  std::vector<std::vector<int>> users;      // per trainable parameter: its owner and borrowers, ascending
};

// A unit that is reduced at some pp coordinate and the units there whose weight gradients it must wait for, itself
// included when it is one of them. See Note [Reduce] in lowering.h.
struct ReducedUnit {
  int unit = -1;
  std::vector<int> users;  // ascending
};

// Those at `pp_coordinate`, ascending; `pp_coordinate_of` has one entry per unit.
std::vector<ReducedUnit> reduced_units(const GraphEdges& edges, const std::vector<int>& pp_coordinate_of,
                                       int pp_coordinate);

}  // namespace orthant
