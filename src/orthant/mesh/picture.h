// A mesh made visible: what `orthant mesh` prints, as text for people and as JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/mesh/mesh.h"

namespace orthant {

// Up to this many ranks the text leaves nothing out; above it, the first of each kind and "... N more".
inline constexpr int kRanksShownWhole = 128;

struct NamedGroups {
  std::string name;  // "tp", "dp+fsdp", "edp"
  std::vector<RankList> groups;
};

// The groups worth showing: one entry per axis of degree above 1; dp+fsdp when both are (replicas that see different
// samples); with cp also dp+fsdp+cp (all that gradients are summed over); edp when experts have replicas.
std::vector<NamedGroups> named_groups(const Mesh& mesh);

// The ranks by coordinate. A row is a run along the innermost axis, with "|" where the next host begins; rows of the
// next-innermost axis form a block; the axes outside head the blocks.
std::string grid_text(const Mesh& mesh, int ranks_per_host);

// Every group by axis.
std::string groups_text(const Mesh& mesh);

// What travels on each axis, and advice where an axis that needs fast links crosses hosts.
std::string traffic_text(const Mesh& mesh, int ranks_per_host);

// The first two above, each under a headline; then with the third.
std::string ranks_text(const Mesh& mesh, int ranks_per_host);
std::string mesh_text(const Mesh& mesh, int ranks_per_host);

// {"world_size", "order": [five axes], "degrees": {six}, "ranks_per_host", "num_hosts",
//  "ranks": [{"rank", "host", "coordinate": {five axes, ep when above 1}, "pp_previous", "pp_next"}],
//  "groups": {name: [[ranks]]}, "traffic": [{"axis", "pattern", "payload", "groups", "group_size", "frequency",
//  "data_size", "bandwidth", "crosses_hosts"}]}, null where there is no neighbour. Never abbreviated.
nlohmann::ordered_json mesh_json(const Mesh& mesh, int ranks_per_host);

}  // namespace orthant
