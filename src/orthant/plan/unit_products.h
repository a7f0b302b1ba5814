// The products and lookups of a unit that exchange something over tp, and whether a gradient flows back through each.
// Follows from a resolved spec; the order of a unit's parts follows from the names of its parameters. Local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct UnitProduct {
  enum class Kind { column, row, lookup };
  Kind kind = Kind::column;
  const ParameterSpec* weight = nullptr;  // the first of joined ones
  bool input_gradient = false;            // its input needs one: the unit's does, or something trained lies before it
};

// Of its own and borrowed parameters that are cut. `inputs_need_gradient` is of the unit's inputs.
std::vector<UnitProduct> unit_products(const GraphSpec& graph, const UnitSpec& unit, bool inputs_need_gradient);

}  // namespace orthant
