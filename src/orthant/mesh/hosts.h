// Which host a rank lives on, and what crosses between hosts. Ranks fill hosts in blocks: host 0 has ranks 0 to
// ranks_per_host - 1, and so on; only the last host may have fewer.
#pragma once

#include <span>

#include "orthant/mesh/mesh.h"

namespace orthant {

// Each throws a ConfigError when ranks_per_host is below 1.
int host_of(int rank, int ranks_per_host);
int num_hosts(int world_size, int ranks_per_host);
bool spans_hosts(std::span<const int> group, int ranks_per_host);

// Whether any group over `axes` has ranks on several hosts.
bool crosses_hosts(const Mesh& mesh, AxisSet axes, int ranks_per_host);

}  // namespace orthant
