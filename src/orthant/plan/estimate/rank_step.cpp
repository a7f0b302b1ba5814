#include "orthant/plan/estimate/rank_step.h"

#include <utility>

#include "orthant/program/cost.h"
#include "orthant/schedule/rank_actions.h"
#include "orthant/schedule/trained_graph.h"

namespace orthant {

GraphSpec trained_graph(GraphSpec graph, const PlanSettings& settings, ProgramCache* programs) {
  const HeadLossOptions head_loss{.join = settings.join_head_and_loss,
                                  .on_host = settings.on_host,
                                  .chunk_rows = settings.loss_chunk_rows,
                                  .programs = programs};
  const int cp = settings.mesh.degree(Axis::cp);
  graph = with_shared_rows(
      trained_graph(std::move(graph), settings.tensor, settings.mesh, head_loss, settings.stages.split),
      settings.context, cp);
  if (cp > 1) add_costs(graph, {}, {}, programs);
  return graph;
}

DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp) {
  DataSettings data;
  data.mesh = parameter_mesh(settings.mesh, settings.data);
  data.coordinate[Axis::pp] = pp;
  data.policy = effective_policy(settings.data, settings.mesh);
  data.params = settings.params;
  data.splits_master = settings.splits_master;
  data.compute = settings.compute;
  data.reduce = settings.gradients;
  data.optimizer_copies = settings.optimizer_copies;
  data.microbatches = static_cast<int>(settings.microbatches());
  data.bf16_hook = settings.bf16_hook;
  place_units(data, pipeline, graph, settings.units);
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

RankStep rank_step(const Pipeline& pipeline, const GraphSpec& graph, const PlanSettings& settings, int pp) {
  RankStep step;
  step.pp = pp;
  step.data = data_settings(pipeline, graph, settings, pp);
  step.tensor = tensor_settings(step.data, settings);
  step.actions = rank_actions(pipeline.table, pipeline, graph, step.data);
  return step;
}

}  // namespace orthant
