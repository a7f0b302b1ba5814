// Which units share the calls that gather their parameters and reduce their gradients. A group joins calls over a list
// of buffers, never their layouts, so that it changes how often ranks speak but no bit of what they compute. Local.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct UnitGrouping {
  enum class Kind {
    layer,       // every unit alone
    min_params,  // neighbours together until they own enough parameters
    names,       // as the user lists them
  };
  Kind kind = Kind::layer;
  std::int64_t min_params = 0;
  std::vector<std::vector<std::string>> names = {};  // per group: units, or "layers.*" for all that begin so
  friend bool operator==(const UnitGrouping&, const UnitGrouping&) = default;
};

// The group of every unit, numbered from 0 by their first units. With `min_params` a borrowed parameter counts for its
// owner only, and a last group that is too small joins the one before it; no group reaches beyond a stage, where
// `unit_stages` says the stage of every unit (empty: one stage). With `names` units that no list names are
// alone; ConfigError with the nearest name for one that does not exist, and for one that is named twice.
std::vector<int> unit_groups(const GraphSpec& graph, const UnitGrouping& grouping,
                             const std::vector<int>& unit_stages = {});

}  // namespace orthant
