#include "orthant/train/trainer_setup.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/plan/trained_graph.h"
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

// The lists of a step grow with these products, on every rank: more is taken for a mistake, before it is paid for.
void check_passes(std::size_t units, int stages, int microbatches) {
  constexpr std::int64_t kMaxPasses = std::int64_t{1} << 17;
  if (static_cast<std::int64_t>(units) * stages > kMaxPasses) {
    throw ConfigError(
        fmt::format("mesh pp={} with the model's {} units: their product is more than {}", stages, units, kMaxPasses),
        {.remedy = fmt::format("use pp={} or less", kMaxPasses / static_cast<std::int64_t>(units))});
  }
  const auto most = std::max<std::int64_t>(1, kMaxPasses / static_cast<std::int64_t>(units));
  if (microbatches <= most) return;
  throw ConfigError(
      fmt::format("parallel.microbatches is {}: with the model's {} units a step has more than {} forward "
                  "passes of units",
                  microbatches, units, kMaxPasses),
      {.remedy = fmt::format("set parallel.microbatches={} or less", most)});
}

// Between the units of a program's own graph every tp rank has all tokens: a module reads whole values.
void check_tokens_stay_whole(const GraphSpec& graph, const Mesh& mesh, const TensorPolicy& policy) {
  if (!policy.sequence_parallel || std::ranges::none_of(graph.values, &ValueSpec::opaque)) return;
  throw ConfigError(fmt::format("mesh {} with sequence parallelism: units of a program's own graph read all tokens",
                                mesh.to_string()),
                    {.remedy = "leave TrainerOptions::tensor.sequence_parallel false"});
}

// Which ranks share copies of a parameter over tp follows from the graph.
const Mesh& without_tensor_axis(const Mesh& mesh) {
  if (mesh.degree(Axis::tp) == 1) return mesh;
  throw ConfigError(fmt::format("mesh {}: which ranks meet over tp follows from the graph", mesh.to_string()),
                    {.remedy = "say connect_ranks(graph.spec(), mesh, job, options)"});
}

}  // namespace

GraphSpec trainer_graph(GraphSpec graph, const Mesh& mesh, const TrainerOptions& options) {
  if (mesh.degree(Axis::tp) > 1) check_tokens_stay_whole(graph, mesh, options.tensor);
  const HeadLossOptions head_loss{
      .join = options.join_head_and_loss, .on_host = options.device.is_cpu(), .chunk_rows = options.loss_chunk_rows};
  return trained_graph(std::move(graph), options.tensor, mesh.degree(Axis::tp), head_loss, options.stages.split);
}

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
  const auto resolved = trainer_graph(graph, mesh, options);
  if (mesh.degree(Axis::tp) > 1) {
    groups.axes.push_back({Axis::tp, comm::Purpose::activations});
    groups.subsets = copy_groups(resolved, mesh);
  }
  if (mesh.degree(Axis::pp) == 1) return groups;
  groups.axes.push_back({Axis::pp, comm::Purpose::activations});
  groups.axes.push_back({Axis::pp, comm::Purpose::gradients});
  if (graph.units.empty()) return groups;  // a program's own modules, which share nothing
  const auto tied = tied_groups(resolved, mesh, trainer_pipeline(resolved, mesh, options).unit_pp_coordinates());
  groups.subsets.insert(groups.subsets.end(), tied.begin(), tied.end());
  return groups;
}

Pipeline trainer_pipeline(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  check_passes(graph.units.size(), mesh.degree(Axis::pp), options.microbatches);
  auto settings = options.stages;
  set_memory_bound(settings, graph, options.precision, num_states(options.optimizer), options.recompute);
  return make_pipeline(graph, mesh.degree(Axis::pp), options.microbatches, settings);
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

PlanSettings plan_settings(const Mesh& mesh, const TrainerOptions& options) {
  PlanSettings settings;
  settings.mesh = mesh;
  settings.global_batch =
      static_cast<std::int64_t>(settings.replicas()) * options.microbatches;  // rows are the caller's
  settings.stages = options.stages;
  settings.split = "auto";
  settings.data = options.policy;
  settings.tensor = options.tensor;
  settings.recompute = static_cast<PlanRecompute>(options.recompute);
  settings.remade = options.remade;
  settings.params = options.precision.params;
  settings.splits_master = options.precision.master == MasterKind::bf16_remainder;
  settings.compute = options.precision.compute;
  settings.gradients = options.precision.reduce;
  const bool on_device = !options.device.is_cpu() && settings.compute != DType::float64;
  settings.statistics = on_device ? DType::float32 : DType::float64;
  settings.join_head_and_loss = options.join_head_and_loss;
  settings.loss_chunk_rows = options.loss_chunk_rows;
  settings.on_host = options.device.is_cpu();
  settings.deterministic = options.deterministic.value_or(false);
  const auto narrower =
      std::min(settings.compute, settings.gradients, [](DType a, DType b) { return bytes_of(a) < bytes_of(b); });
  settings.widens_products = !nn::cpu_multiplies(scalar_type(narrower));
  settings.optimizer_copies = num_states(options.optimizer);
  settings.units = options.units;
  if (options.hook) {
    const auto probe = at::zeros({1}, scalar_type(options.precision.reduce));
    settings.bf16_hook = encoded(options.hook, probe).element_size() == 2;
  }
  return settings;
}

DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                           const TrainerOptions& options) {
  auto settings = data_settings(pipeline, graph, plan_settings(mesh, options), /*pp=*/0);
  if (options.communicator) settings.coordinate = mesh.coordinate(options.communicator->rank());
  return settings;
}

TensorSettings tensor_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                               const TrainerOptions& options) {
  return tensor_settings(data_settings(pipeline, graph, mesh, options), plan_settings(mesh, options));
}

std::vector<Action> evaluation_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                       const TrainerOptions& options) {
  const auto table = make_forward_schedule(pipeline.map, graph, /*microbatches=*/1);
  return rank_actions(table, pipeline, graph, data_settings(pipeline, graph, mesh, options));
}

std::vector<Action> step_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options) {
  return rank_actions(pipeline.table, pipeline, graph, data_settings(pipeline, graph, mesh, options));
}

std::vector<RankStep> rank_steps(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options) {
  const auto settings = plan_settings(mesh, options);
  std::vector<RankStep> steps;
  for (int pp = 0; pp < pipeline.pp_degree(); ++pp) steps.push_back(rank_step(pipeline, graph, settings, pp));
  return steps;
}

}  // namespace orthant
