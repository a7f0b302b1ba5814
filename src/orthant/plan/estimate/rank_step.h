// What a rank does in a step, and what the closed forms of memory and traffic are computed from: the planner prices
// it, a trainer runs it. Pure and local.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/unit_traffic.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// The graph that a trainer with these settings would run.
GraphSpec trained_graph(GraphSpec graph, const PlanSettings& settings, ProgramCache* programs = nullptr);

// Of the first rank of a pp coordinate.
DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp);
TensorSettings tensor_settings(const DataSettings& data, const PlanSettings& settings);

struct RankStep {
  int pp = 0;
  DataSettings data;
  TensorSettings tensor;
  std::vector<Action> actions;
};

RankStep rank_step(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp);

}  // namespace orthant
