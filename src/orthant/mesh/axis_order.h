// The order of the axes on the ranks, outermost (slowest) first. Users write it as "pp,tp,dp" and may leave out axes of
// degree 1, which are then put in by one rule so that equal words give equal meshes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "orthant/mesh/axis.h"

namespace orthant {

// Every axis but ep, outermost first.
using AxisOrder = std::array<Axis, 5>;

inline constexpr AxisOrder kDefaultOrder = {Axis::pp, Axis::dp, Axis::fsdp, Axis::cp, Axis::tp};

// Reads "pp,tp,dp" (axes joined by `separator`; empty: the default order). `needed` are the axes of degree above 1,
// which must be named; each other axis left out comes right after the axis it follows in the default order (pp comes
// first). ConfigError when a needed axis is missing, an axis is named twice or unknown, or ep is named.
AxisOrder parse_order(std::string_view text, AxisSet needed, char separator = ',');

// All five axes joined by `separator`.
std::string order_text(const AxisOrder& order, char separator = ',');

// The shortest text that parse_order(text, needed) reads as `order`; empty when that is the default order.
std::string short_order_text(const AxisOrder& order, AxisSet needed, char separator = ',');

}  // namespace orthant
