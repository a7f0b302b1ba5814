#include "orthant/train/trainer_plan.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/plan/data_actions.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/train/pipeline_config.h"

namespace orthant {
namespace {

// As many ranks, the axes that training does not use given to dp.
std::string nearest_mesh(const Mesh& mesh) {
  const int pp = mesh.degree(Axis::pp);
  const int fsdp = mesh.degree(Axis::fsdp);
  const int tp = mesh.degree(Axis::tp);
  std::string text = pp > 1 ? fmt::format("pp={},", pp) : "";
  text += fmt::format("dp={}", mesh.world_size() / pp / fsdp / tp);
  if (fsdp > 1) text += fmt::format(",fsdp={}", fsdp);
  if (tp > 1) text += fmt::format(",tp={}", tp);
  return text;
}

}  // namespace

void check_mesh(const Mesh& mesh) {
  for (const auto axis : mesh.active_axes()) {
    if (axis == Axis::pp || axis == Axis::dp || axis == Axis::fsdp || axis == Axis::tp) continue;
    throw ConfigError(
        fmt::format("mesh {}: training has no {} axis; it uses pp, dp, fsdp and tp", mesh.to_string(), axis_name(axis)),
        {.remedy = fmt::format("use --mesh {}, or leave {} out", nearest_mesh(mesh), axis_name(axis))});
  }
}

void check_stage_backend(const Mesh& mesh, std::string_view backend) {
  if (mesh.degree(Axis::pp) == 1 || backend != "nccl") return;
  throw ConfigError(fmt::format("mesh {}: stages do not talk over NCCL", mesh.to_string()),
                    {.remedy = "use --backend gloo, or a mesh without pp"});
}

void check_trains(const GraphSpec& graph) {
  const auto trains = [](const UnitSpec& unit) {
    return std::ranges::any_of(unit.parameters, &ParameterSpec::trainable);
  };
  if (std::ranges::any_of(graph.units, trains)) return;
  throw ConfigError("every parameter is frozen: there is nothing to train", {.remedy = "narrow model.freeze"});
}

RankGroups trainer_groups(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  RankGroups groups{store_groups(mesh, options.policy), {}};
  const auto placed = placed_graph(graph, options.tensor, mesh.degree(Axis::tp));
  if (mesh.degree(Axis::tp) > 1) {
    groups.axes.push_back({Axis::tp, comm::Purpose::activations});
    groups.subsets = copy_groups(placed, mesh);
  }
  if (mesh.degree(Axis::pp) == 1) return groups;
  groups.axes.push_back({Axis::pp, comm::Purpose::activations});
  groups.axes.push_back({Axis::pp, comm::Purpose::gradients});
  if (graph.units.empty()) return groups;  // a program's own modules, which share nothing
  const auto tied = tied_groups(placed, mesh, trainer_pipeline(placed, mesh, options).unit_ranks());
  groups.subsets.insert(groups.subsets.end(), tied.begin(), tied.end());
  return groups;
}

Pipeline trainer_pipeline(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  auto settings = options.stages;
  set_memory_bound(settings, graph, options.precision.params, options.precision.compute, options.precision.reduce,
                   num_states(options.optimizer), options.recompute);
  return make_pipeline(graph, mesh.degree(Axis::pp), options.microbatches, settings);
}

const Mesh& without_tensor_axis(const Mesh& mesh) {
  if (mesh.degree(Axis::tp) == 1) return mesh;
  throw ConfigError(fmt::format("mesh {}: a program's own modules do not say how tp={} would cut them",
                                mesh.to_string(), mesh.degree(Axis::tp)),
                    {.remedy = "use dp or fsdp, or one of the models of build_spec()"});
}

std::shared_ptr<comm::Communicator> connect_ranks(const GraphSpec& graph, const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds) {
  if (job.world_size == 1) return nullptr;
  const auto groups = trainer_groups(graph, mesh, options);
  comm::CommOptions comm;
  comm.device = options.device;
  comm.bind_address = job.rendezvous.bind_address;
  comm.timeout_seconds = timeout_seconds;
  return comm::make_communicator(mesh, job, comm, groups.axes, groups.subsets);
}

std::shared_ptr<comm::Communicator> connect_ranks(const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds) {
  return connect_ranks(GraphSpec(), without_tensor_axis(mesh), job, options, timeout_seconds);
}

namespace {

// All but the place of the units.
DataSettings common_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                             const TrainerOptions& options) {
  DataSettings settings;
  settings.mesh = mesh;
  if (options.communicator) settings.coordinate = mesh.coordinate(options.communicator->rank());
  settings.policy = effective_policy(options.policy, mesh);
  settings.params = options.precision.params;
  settings.compute = options.precision.compute;
  settings.reduce = options.precision.reduce;
  settings.optimizer_copies = num_states(options.optimizer);
  settings.microbatches = options.microbatches;
  settings.unit_groups = unit_groups(graph, options.units, pipeline.unit_stages());
  if (options.hook) {
    const auto probe = at::zeros({1}, scalar_type(options.precision.reduce));
    settings.bf16_hook = encoded(options.hook, probe).element_size() == 2;
  }
  return settings;
}

// As if all units were here.
TensorSettings one_stage_tensor(const Mesh& mesh, const TrainerOptions& options) {
  TensorSettings settings;
  settings.degree = mesh.degree(Axis::tp);
  settings.sequence_parallel = options.tensor.sequence_parallel;
  settings.loss_parallel = options.tensor.loss_parallel;
  settings.regather = options.tensor.regather;
  settings.compute = options.precision.compute;
  settings.reduce = options.precision.reduce;
  settings.microbatches = options.microbatches;
  settings.recompute = options.recompute;
  if (!options.device.is_cpu() && settings.compute != DType::float64) settings.statistics = DType::float32;
  if (effective_policy(options.policy, mesh).accumulate_sharded) settings.reductions = options.microbatches;
  return settings;
}

std::vector<Action> lowered(const StageTable& table, const Pipeline& pipeline, const GraphSpec& graph,
                            const DataSettings& settings) {
  return data_actions(lower(table, pipeline.map, graph, settings.coordinate[Axis::pp]), graph, settings);
}

}  // namespace

DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                           const TrainerOptions& options) {
  auto settings = common_settings(pipeline, graph, mesh, options);
  if (pipeline.num_ranks() > 1) settings.unit_ranks = pipeline.unit_ranks();
  return settings;
}

TensorSettings tensor_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                               const TrainerOptions& options) {
  auto settings = one_stage_tensor(mesh, options);
  const auto data = data_settings(pipeline, graph, mesh, options);
  settings.unit_ranks = data.unit_ranks;
  settings.pp = data.coordinate[Axis::pp];
  return settings;
}

std::vector<Action> evaluation_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                       const TrainerOptions& options) {
  const auto table = make_forward_schedule(pipeline.map, graph, /*microbatches=*/1);
  return lowered(table, pipeline, graph, data_settings(pipeline, graph, mesh, options));
}

std::vector<Action> step_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options) {
  return lowered(pipeline.table, pipeline, graph, data_settings(pipeline, graph, mesh, options));
}

std::vector<RankPlan> rank_plans(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options) {
  RankPlan plan{0, common_settings(pipeline, graph, mesh, options), one_stage_tensor(mesh, options), {}};
  if (pipeline.num_ranks() > 1) plan.data.unit_ranks = plan.tensor.unit_ranks = pipeline.unit_ranks();
  std::vector<RankPlan> plans;
  for (int pp = 0; pp < pipeline.num_ranks(); ++pp) {
    plan.pp = plan.data.coordinate[Axis::pp] = plan.tensor.pp = pp;
    plan.actions = lowered(pipeline.table, pipeline, graph, plan.data);
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace orthant
