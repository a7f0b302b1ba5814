// What a table must hold whatever the graph is: each stage on its pp coordinate, each microbatch through it once
// forward and once backward, in order. The part of validate() that needs no lowering.
#pragma once

#include <vector>

#include "orthant/schedule/stage_table.h"

namespace orthant {

// ConfigError that names the action and shows the grid around it. `pp_coordinates` has one entry per stage.
void check_table(const StageTable& table, const std::vector<int>& pp_coordinates);

// ConfigError when a pp coordinate holds more (stage, microbatch) pairs at once than its bound, counted as in grid.h;
// it names the forward that is one too many. `bounds` is per pp coordinate.
void check_in_flight(const StageTable& table, const std::vector<int>& bounds);

}  // namespace orthant
