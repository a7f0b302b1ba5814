// What follows from a graph, a mesh and a trainer's options before anything is made: the ranks it talks to, its stages,
// the actions of its ranks. What the planner is told of them: planned_trainer.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/mesh/mesh.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/channel.h"
#include "orthant/train/trainer_options.h"

namespace orthant {

// The graph as it is trained: placed over tp, head and loss joined where the options say so. A graph that is so already
// stays. ConfigError where it cannot. Local.
GraphSpec trainer_graph(GraphSpec graph, const Mesh& mesh, const TrainerOptions& options);

// ConfigError when every parameter is frozen.
void check_trains(const GraphSpec& graph);

// The channels that a step's lists use, those of an evaluation among them. ConfigError where the lists would not come
// to their end over NCCL, see Note [Queues of NCCL] in schedule/message_queues.h. Local.
std::vector<Channel> message_channels(const Pipeline& pipeline, const GraphSpec& graph);

// The sub-group of ranks that send each other tokens for their experts.
inline const std::string kTokenGroup = "tokens over ep";

// The groups of ranks a trainer of that graph talks to; for the communicator it is given.
struct RankGroups {
  std::vector<comm::GroupRequest> axes;
  std::vector<comm::SubgroupRequest> subsets;  // holders of copies over tp, of experts, stages with tied parameters
};
RankGroups trainer_groups(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

// The communicator of a trainer on this mesh, for programs: options.communicator = connect_ranks(mesh, job, options).
// Null on one rank. Blocks until all ranks have come. Without a graph: of a program's own one, on a mesh without tp;
// with tp it is given as graph.spec(). ConfigError otherwise.
std::shared_ptr<comm::Communicator> connect_ranks(const GraphSpec& graph, const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds = 300);
std::shared_ptr<comm::Communicator> connect_ranks(const Mesh& mesh, const launch::Job& job,
                                                  const TrainerOptions& options, double timeout_seconds = 300);

// Which units run on which pp coordinate, and in which order. The graph is resolved.
Pipeline trainer_pipeline(const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

// Whether the options' hook sends gradients in bfloat16.
bool encodes_bf16(const TrainerOptions& options);

// What data parallelism does of a trainer follows from these. `pipeline` is that of trainer_pipeline(), here and below;
// the rank is that of the options' communicator, or the first. Local, as are all below.
DataSettings data_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                           const TrainerOptions& options);

// What a step of a rank does, by the stages, schedule and policy of the options, and what an evaluation does: lowered.
std::vector<Action> step_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options);
std::vector<Action> evaluation_actions(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                       const TrainerOptions& options);

// ConfigError for what cannot run at some pp coordinate.
void check_lists(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh, const TrainerOptions& options);

}  // namespace orthant
