// What a table must hold whatever the graph is: each stage on its rank, each microbatch through it once forward and
// once backward, in order. The part of validate() that needs no lowering.
#pragma once

#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// ConfigError that names the action and shows the grid around it.
void check_table(const StageTable& table, const StageMap& map);

}  // namespace orthant
