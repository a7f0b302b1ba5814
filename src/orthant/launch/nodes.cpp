#include "orthant/launch/nodes.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/launch/node_hub.h"
#include "orthant/launch/node_member.h"

namespace orthant::launch {
namespace {

void check(const NodeOptions& options) {
  if (options.num_nodes < 1 || options.node_rank < 0 || options.node_rank >= options.num_nodes) {
    throw ConfigError(fmt::format("node rank {} of {} nodes is impossible", options.node_rank, options.num_nodes),
                      {.remedy = "--node-rank counts from 0 and stays below --nnodes"});
  }
  if (options.min_nodes > options.num_nodes) {
    throw ConfigError(fmt::format("at least {} of {} nodes are impossible", options.min_nodes, options.num_nodes),
                      {.remedy = "write --nnodes MIN:MAX with the smaller number first"});
  }
  if (options.rendezvous.port == 0 && options.num_nodes > 1) {
    throw ConfigError(fmt::format("{} nodes cannot meet at port 0", options.num_nodes),
                      {.remedy = "give --rendezvous HOST:PORT with a free port of node 0's host"});
  }
  const auto& membership = options.membership;
  if (options.num_nodes > 1 && !membership.token && !membership.open) {
    find_membership({}, fmt::format("{} nodes", options.num_nodes));  // throws with the remedy
  }
}

}  // namespace

std::unique_ptr<NodeLink> join_nodes(const NodeOptions& given) {
  Fd listener(given.listen_fd);
  check(given);
  auto options = given;
  if (options.min_nodes == 0) options.min_nodes = options.num_nodes;
  listener.release();  // the hub takes it over
  if (options.node_rank == 0) return std::make_unique<NodeHub>(options);
  return std::make_unique<NodeMember>(options);
}

}  // namespace orthant::launch
