// A generation on a mesh: which axes it has, which groups its ranks need, and which units run on which rank. Local.
#pragma once

#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/graph/spec.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/model_config.h"
#include "orthant/schedule/actions.h"
#include "orthant/schedule/channel.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// ConfigError for axes other than tp, pp, dp and ep, by name, with what to set.
void check_generation_mesh(const Mesh& mesh);

// For the communicator of the mesh.
struct GenerationGroups {
  std::vector<comm::GroupRequest> axes;
  std::vector<comm::SubgroupRequest> subsets;
};
GenerationGroups generation_groups(const Mesh& mesh);

// Whether ranks of several replicas hold experts for one another: replicas then compute their steps together.
bool replicas_share_experts(const Mesh& mesh);

// generation_graph() as it lies over the mesh. ConfigError for a model that generates no text, and for a degree that it
// does not allow, which names others.
GraphSpec placed_generation_graph(const ModelConfig& config, const Mesh& mesh, DType dtype);

// Units by pp coordinate, and what each of them does in a step.
struct GenerationStages {
  StageMap map;
  std::vector<int> unit_pp_coordinates;      // per unit
  std::vector<std::vector<Action>> actions;  // per pp coordinate
  std::vector<Channel> channels;
};

// ConfigError for more stages than units.
GenerationStages generation_stages(const GraphSpec& graph, const Mesh& mesh);

// The ranks of a replica, in their order; the one that chooses tokens: the first of the last stage.
std::vector<int> replica_ranks(const Mesh& mesh, int replica);
int choosing_rank(const Mesh& mesh, int replica);

}  // namespace orthant
