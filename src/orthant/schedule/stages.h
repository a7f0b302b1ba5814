// Which units form a stage and which pp coordinate runs it. An edge of the graph may only lead to the same or a later
// stage; units of a stage run in ascending order. A map with several stages per pp coordinate is legal.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct StageMap {
  std::vector<std::vector<int>> units;  // per stage: unit indices, ascending
  std::vector<int> pp_coordinates;      // per stage: pp coordinate

  int num_stages() const { return static_cast<int>(units.size()); }
  int pp_degree() const;  // pp coordinates: one more than the largest
  friend bool operator==(const StageMap&, const StageMap&) = default;
};

// Runs of consecutive units, stage s on pp s. The heaviest stage (forward and backward FLOPs) is as light as it can
// be; among such cuts the rest is as even as it can be. A loss stays with the last unit that feeds it. ConfigError when
// there are fewer units than stages. With measured costs or a bound on memory: split_stages() in stage_split.h.
StageMap even_stages(const GraphSpec& graph, int stages);

// A user's split, by unit names; `pp_coordinates` has one entry per stage; empty: stage s on pp s. ConfigError
// that names the units when one is unknown, missing or named twice, or when an edge leads to an earlier stage.
StageMap named_stages(const GraphSpec& graph, const std::vector<std::vector<std::string>>& names,
                      const std::vector<int>& pp_coordinates = {});

// The same stages, all on pp 0.
StageMap on_one_pp_coordinate(StageMap map);

// Every unit in exactly one stage, no stage empty, no pp coordinate without a stage, edges to the same or later stages;
// ConfigError otherwise.
void check_stages(const StageMap& map, const GraphSpec& graph);

}  // namespace orthant
