#include "orthant/train/planned_trainer.h"

#include <algorithm>

#include "orthant/nn/kernels/isa.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/linear/projection.h"

namespace orthant {

PlanSettings plan_settings(const Mesh& mesh, const TrainerOptions& options) {
  PlanSettings settings;
  settings.mesh = mesh;
  settings.global_batch =
      static_cast<std::int64_t>(settings.replicas()) * options.microbatches;  // rows are the caller's
  settings.stages = options.stages;
  settings.split = "auto";
  settings.data = options.policy;
  settings.tensor = options.tensor;
  settings.context = options.context;
  settings.recompute = static_cast<PlanRecompute>(options.recompute);
  settings.remade = options.remade;
  settings.params = options.precision.params;
  settings.splits_master = options.precision.master == MasterKind::bf16_remainder;
  settings.compute = options.precision.compute;
  settings.float8 = options.precision.float8;
  settings.gradients = options.precision.reduce;
  const bool on_device = !options.device.is_cpu() && settings.compute != DType::float64;
  settings.statistics = on_device ? DType::float32 : DType::float64;
  settings.join_head_and_loss = options.join_head_and_loss;
  settings.loss_chunk_rows = options.loss_chunk_rows;
  settings.on_host = options.device.is_cpu();
  settings.vector_bytes = nn::kernels::vector_bytes(nn::kernels::best_isa());
  settings.deterministic = options.deterministic.value_or(false);
  const auto narrower =
      std::min(settings.compute, settings.gradients, [](DType a, DType b) { return bytes_of(a) < bytes_of(b); });
  settings.widens_products = !nn::cpu_multiplies(scalar_type(narrower));
  settings.optimizer_copies = num_states(options.optimizer);
  settings.units = options.units;
  settings.bf16_hook = encodes_bf16(options);
  return settings;
}

TensorSettings tensor_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                               const TrainerOptions& options) {
  return tensor_settings(data_settings(pipeline, graph, mesh, options), plan_settings(mesh, options));
}

std::vector<RankStep> rank_steps(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options) {
  const auto settings = plan_settings(mesh, options);
  std::vector<RankStep> steps;
  for (int pp = 0; pp < pipeline.pp_degree(); ++pp) steps.push_back(rank_step(pipeline, graph, settings, pp));
  return steps;
}

}  // namespace orthant
