#include "orthant/plan/estimate/rank_step.h"

#include "orthant/schedule/data_actions.h"
#include "orthant/schedule/lowering.h"

namespace orthant {

DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp) {
  DataSettings data;
  data.mesh = settings.mesh;
  data.coordinate[Axis::pp] = pp;
  data.policy = effective_policy(settings.data, settings.mesh);
  data.params = settings.params;
  data.splits_master = settings.splits_master;
  data.compute = settings.compute;
  data.reduce = settings.gradients;
  data.optimizer_copies = settings.optimizer_copies;
  data.microbatches = static_cast<int>(settings.microbatches());
  data.unit_groups = unit_groups(graph, settings.units, pipeline.unit_stages());
  if (pipeline.pp_degree() > 1) data.unit_pp_coordinates = pipeline.unit_pp_coordinates();
  data.bf16_hook = settings.bf16_hook;
  return data;
}

TensorSettings tensor_settings(const DataSettings& data, const PlanSettings& settings) {
  TensorSettings tensor;
  tensor.degree = settings.mesh.degree(Axis::tp);
  tensor.sequence_parallel = settings.tensor.sequence_parallel;
  tensor.loss_parallel = settings.tensor.loss_parallel;
  tensor.regather = settings.tensor.regather;
  tensor.compute = settings.compute;
  tensor.reduce = settings.gradients;
  tensor.statistics = settings.statistics;
  tensor.microbatches = data.microbatches;
  tensor.reductions = data.policy.accumulate_sharded ? data.microbatches : 1;
  tensor.recompute = static_cast<Recompute>(settings.recompute);
  tensor.unit_pp_coordinates = data.unit_pp_coordinates;
  tensor.pp = data.coordinate[Axis::pp];
  return tensor;
}

std::vector<Action> rank_actions(const StageTable& table, const Pipeline& pipeline, const GraphSpec& graph,
                                 const DataSettings& data) {
  return data_actions(lower(table, pipeline.map, graph, data.coordinate[Axis::pp]), graph, data);
}

RankStep rank_step(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp) {
  RankStep step;
  step.pp = pp;
  step.data = data_settings(pipeline, graph, settings, pp);
  step.tensor = tensor_settings(step.data, settings);
  step.actions = rank_actions(pipeline.table, pipeline, graph, step.data);
  return step;
}

}  // namespace orthant
