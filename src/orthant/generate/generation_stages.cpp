#include "orthant/generate/generation_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/layout/data_policy.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/generation_graph.h"
#include "orthant/models/work_size.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/message_queues.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/pipeline.h"
#include "orthant/train/trainer_setup.h"

namespace orthant {
namespace {

// Over ep ranks have whole experts. tp ranks then have tokens of their own (sequence parallelism) to send to them.
constexpr int kWholeExperts = 1;

}  // namespace

void check_generation_mesh(const Mesh& mesh) {
  const auto refuse = [&](Axis axis, const char* reason, const char* remedy) {
    if (mesh.degree(axis) == 1) return;
    throw ConfigError(
        fmt::format("mesh {}: a generation has no {} axis: {}", mesh.to_string(), axis_name(axis), reason),
        {.remedy = fmt::format("{} (axes of a generation are tp, pp, dp and ep)", remedy)});
  };
  refuse(Axis::fsdp, "weights that lie in shards would be gathered again for every token",
         "use tp or pp to cut the model, dp for more replicas");
  refuse(Axis::cp, "the next token of a sequence has one position, which cannot be cut", "use tp to share attention");
}

GenerationGroups generation_groups(const Mesh& mesh) {
  GenerationGroups groups{store_groups(mesh, {}), {}};
  if (mesh.degree(Axis::tp) > 1) groups.axes.push_back({Axis::tp, comm::Purpose::activations});
  if (mesh.degree(Axis::pp) > 1) {
    groups.axes.push_back({Axis::pp, comm::Purpose::activations});
    groups.axes.push_back({Axis::pp, comm::Purpose::gradients});  // which links have, though none travel here
  }
  if (mesh.degree(Axis::ep) == 1) return groups;
  groups.subsets = expert_groups(mesh, kWholeExperts, {});
  groups.subsets.push_back(
      {.name = kTokenGroup, .members = token_groups(mesh, kWholeExperts), .purpose = comm::Purpose::activations});
  return groups;
}

bool replicas_share_experts(const Mesh& mesh) {
  if (mesh.degree(Axis::ep) == 1 || mesh.degree(Axis::dp) == 1) return false;
  const auto replica = [&](int rank) { return mesh.coordinate(rank)[Axis::dp]; };
  return std::ranges::any_of(token_groups(mesh, kWholeExperts), [&](const RankList& ranks) {
    return std::ranges::any_of(ranks, [&](int rank) { return replica(rank) != replica(ranks.front()); });
  });
}

GraphSpec placed_generation_graph(const ModelConfig& config, const Mesh& mesh, DType dtype) {
  check_generation_mesh(mesh);
  const WorkSize one{.rows = 1, .sequence = 1, .compute = dtype};
  GraphSpec graph = generation_graph(config, one);
  TensorPolicy policy;
  if (mesh.degree(Axis::ep) > 1) {
    policy.sequence_parallel = mesh.degree(Axis::tp) > 1;
    graph = with_experts(std::move(graph), mesh, policy);
  }
  return resolved_graph(std::move(graph), policy, mesh.degree(Axis::tp));
}

GenerationStages generation_stages(const GraphSpec& graph, const Mesh& mesh) {
  const int stages = mesh.degree(Axis::pp);
  if (stages == 1) return {{}, {}, {forward_actions(graph)}, {}};
  const auto units = static_cast<int>(graph.units.size());
  if (stages > units) {
    throw ConfigError(fmt::format("mesh {}: {} stages, and the model has {} units", mesh.to_string(), stages, units),
                      {.remedy = fmt::format("set pp to at most {}", units)});
  }
  const Pipeline pipeline = make_pipeline(graph, stages, /*microbatches=*/1, {.schedule = "gpipe"});
  GenerationStages made{pipeline.map, pipeline.unit_pp_coordinates(), {}, {}};
  const StageTable table = make_forward_schedule(pipeline.map, graph, /*microbatches=*/1);
  for (int pp = 0; pp < stages; ++pp) made.actions.push_back(lower(table, pipeline.map, graph, pp));
  made.channels = channels_of(made.actions);
  return made;
}

std::vector<int> replica_ranks(const Mesh& mesh, int replica) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    if (mesh.coordinate(rank)[Axis::dp] == replica) ranks.push_back(rank);
  }
  return ranks;
}

int choosing_rank(const Mesh& mesh, int replica) {
  Coordinate at;
  at[Axis::dp] = replica;
  at[Axis::pp] = mesh.degree(Axis::pp) - 1;
  return mesh.rank_of(at);
}

}  // namespace orthant
