#include "orthant/generate/generation_stages.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/layout/data_policy.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/generation_graph.h"
#include "orthant/models/work_size.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/message_queues.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

void check_generation_mesh(const Mesh& mesh) {
  const auto refuse = [&](Axis axis, const char* reason, const char* remedy) {
    if (mesh.degree(axis) == 1) return;
    throw ConfigError(
        fmt::format("mesh {}: a generation has no {} axis: {}", mesh.to_string(), axis_name(axis), reason),
        {.remedy = fmt::format("{} (axes of a generation are tp, pp and dp)", remedy)});
  };
  refuse(Axis::fsdp, "weights that lie in shards would be gathered again for every token",
         "use tp or pp to cut the model, dp for more replicas");
  refuse(Axis::cp, "the next token of a sequence has one position, which cannot be cut", "use tp to share attention");
  refuse(Axis::ep, "experts lie with the layers that use them", "use tp to cut every expert");
}

std::vector<comm::GroupRequest> generation_groups(const Mesh& mesh) {
  std::vector<comm::GroupRequest> groups = store_groups(mesh, {});
  if (mesh.degree(Axis::tp) > 1) groups.push_back({Axis::tp, comm::Purpose::activations});
  if (mesh.degree(Axis::pp) > 1) {
    groups.push_back({Axis::pp, comm::Purpose::activations});
    groups.push_back({Axis::pp, comm::Purpose::gradients});  // which links have, though none travel here
  }
  return groups;
}

GraphSpec placed_generation_graph(const ModelConfig& config, const Mesh& mesh, DType dtype) {
  check_generation_mesh(mesh);
  const WorkSize one{.rows = 1, .sequence = 1, .compute = dtype};
  return resolved_graph(generation_graph(config, one), TensorPolicy(), mesh.degree(Axis::tp));
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
