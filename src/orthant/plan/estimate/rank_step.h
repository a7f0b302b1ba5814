// What a rank does in a step, and what the closed forms of memory and traffic are computed from: the planner prices
// it, a trainer runs it. Pure and local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/tensor_traffic.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// Of the first rank of a pp coordinate.
DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp);
TensorSettings tensor_settings(const DataSettings& data, const PlanSettings& settings);

// The list that runs at data.coordinate, of the step's table or of another one of the same stages.
std::vector<Action> rank_actions(const StageTable& table, const Pipeline& pipeline, const GraphSpec& graph,
                                 const DataSettings& data);

struct RankStep {
  int pp = 0;
  DataSettings data;
  TensorSettings tensor;
  std::vector<Action> actions;
};

RankStep rank_step(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp);

}  // namespace orthant
