#include "orthant/train/trainer_setup.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/layout/expert_view.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/program/cost.h"
#include "orthant/program/float8.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/message_queues.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/rank_actions.h"
#include "orthant/schedule/trained_graph.h"
#include "orthant/train/pipeline_config.h"

namespace orthant {
namespace {

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
  const int cp = mesh.degree(Axis::cp);
  if (options.unpadded && cp > 1) {
    throw ConfigError(fmt::format("data.padding none on mesh {}: the tokens of all texts are one row, which cp would "
                                  "cut between texts",
                                  mesh.to_string()),
                      {.remedy = "set data.padding=longest, or use a mesh without cp"});
  }
  if (options.unpadded && std::ranges::any_of(graph.values, &ValueSpec::opaque)) {
    throw ConfigError("rows without padding for a program's own graph, whose modules read rows and positions",
                      {.remedy = "set TrainerOptions::unpadded to false"});
  }
  const bool shared = graph.context.degree == cp;
  graph = with_shared_rows(trained_graph(std::move(graph), options.tensor, mesh, head_loss, options.stages.split),
                           options.context, cp);
  if (!shared) add_costs(graph);
  return options.precision.float8 ? with_float8_products(graph) : graph;
}

std::vector<Channel> message_channels(const Pipeline& pipeline, const GraphSpec& graph) {
  std::vector<std::vector<Action>> lists;
  for (int pp = 0; pp < pipeline.pp_degree(); ++pp) lists.push_back(lower(pipeline.table, pipeline.map, graph, pp));
  validate_queues(lists, graph, {});
  validate_queues(lists, graph, {.posted_ahead = 0});  // their first runs on a card
  return channels_of(lists);
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
  if (mesh.degree(Axis::cp) > 1) groups.axes.push_back({Axis::cp, comm::Purpose::activations});
  const auto experts = expert_groups(resolved, mesh, options.policy);
  groups.subsets.insert(groups.subsets.end(), experts.begin(), experts.end());
  if (mesh.degree(Axis::ep) > 1) {
    groups.subsets.push_back({.name = kTokenGroup,
                              .members = token_groups(mesh, expert_tp(resolved, mesh)),
                              .purpose = comm::Purpose::activations});
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

bool encodes_bf16(const TrainerOptions& options) {
  if (!options.hook) return false;
  return encoded(options.hook, at::zeros({1}, scalar_type(options.precision.reduce))).element_size() == 2;
}

DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                           const TrainerOptions& options) {
  DataSettings data;
  data.mesh = parameter_mesh(mesh, options.policy);
  if (options.communicator) data.coordinate = data.mesh.coordinate(options.communicator->rank());
  data.policy = effective_policy(options.policy, mesh);
  data.params = options.precision.params;
  data.compute = options.precision.compute;
  data.reduce = options.precision.reduce;
  data.splits_master = options.precision.master == MasterKind::bf16_remainder;
  data.optimizer_copies = num_states(options.optimizer);
  data.microbatches = options.microbatches;
  data.bf16_hook = encodes_bf16(options);
  place_units(data, pipeline, graph, options.units);
  return data;
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

void check_lists(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options) {
  auto data = data_settings(pipeline, graph, mesh, options);
  for (int pp = 0; pp < pipeline.pp_degree(); ++pp) {
    data.coordinate = {};
    data.coordinate[Axis::pp] = pp;
    rank_actions(pipeline.table, pipeline, graph, data);
  }
}

}  // namespace orthant
