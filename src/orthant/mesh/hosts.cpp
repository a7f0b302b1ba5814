#include "orthant/mesh/hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {
namespace {

void check_ranks_per_host(int ranks_per_host) {
  if (ranks_per_host >= 1) return;
  throw ConfigError(fmt::format("{} ranks per host: a host has at least one", ranks_per_host),
                    {.remedy = "set the ranks per host to the number of devices of one machine, such as 8"});
}

}  // namespace

int host_of(int rank, int ranks_per_host) {
  check_ranks_per_host(ranks_per_host);
  return rank / ranks_per_host;
}

int num_hosts(int world_size, int ranks_per_host) {
  return host_of(world_size - 1, ranks_per_host) + 1;
}

bool spans_hosts(std::span<const int> group, int ranks_per_host) {
  return std::ranges::any_of(
      group, [&](int rank) { return host_of(rank, ranks_per_host) != host_of(group.front(), ranks_per_host); });
}

bool crosses_hosts(const Mesh& mesh, AxisSet axes, int ranks_per_host) {
  if (num_hosts(mesh.world_size(), ranks_per_host) == 1) return false;
  return std::ranges::any_of(mesh.groups(axes),
                             [&](const RankList& group) { return spans_hosts(group, ranks_per_host); });
}

}  // namespace orthant
