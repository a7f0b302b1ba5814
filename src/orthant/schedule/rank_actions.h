// The list of a rank: a table lowered to the actions of one pp coordinate, with those of data parallelism. The executor
// runs it, the planner prices it. Pure and local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/layout/unit_groups.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// Sets the groups of units and, on several stages, their pp coordinates.
void place_units(DataSettings& data, const Pipeline& pipeline, const GraphSpec& graph, const UnitGrouping& grouping);

// The list that runs at data.coordinate, of the step's table or of another one of the same stages.
std::vector<Action> rank_actions(const StageTable& table, const Pipeline& pipeline, const GraphSpec& graph,
                                 const DataSettings& data);

}  // namespace orthant
