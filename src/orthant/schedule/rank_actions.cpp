#include "orthant/schedule/rank_actions.h"

#include "orthant/schedule/data_actions.h"
#include "orthant/schedule/lowering.h"

namespace orthant {

void place_units(DataSettings& data, const Pipeline& pipeline, const GraphSpec& graph, const UnitGrouping& grouping) {
  data.unit_groups = unit_groups(graph, grouping, pipeline.unit_stages());
  if (pipeline.pp_degree() > 1) data.unit_pp_coordinates = pipeline.unit_pp_coordinates();
}

std::vector<Action> rank_actions(const StageTable& table, const Pipeline& pipeline, const GraphSpec& graph,
                                 const DataSettings& data) {
  return data_actions(lower(table, pipeline.map, graph, data.coordinate[Axis::pp]), graph, data);
}

}  // namespace orthant
