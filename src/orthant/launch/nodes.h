// A job on several hosts: one launcher per host, numbered by node rank. Node 0's launcher listens at the rendezvous,
// the others connect and both sides prove that they belong to the job; when all are there each learns its place. The
// connections stay open, so that a failure anywhere ends the job everywhere, and node 0 knows when all have ended.
#pragma once

#include <memory>
#include <string>

#include "orthant/launch/doorman.h"
#include "orthant/launch/external_events.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/token.h"

namespace orthant::launch {

struct NodeOptions {
  int num_nodes = 1;
  int node_rank = 0;
  int num_ranks = 1;             // on this node
  Endpoint rendezvous;           // node 0's host as the others reach it, and the port its launcher listens on
  std::string bind;              // node 0: the address to listen on instead of the rendezvous host's
  int listen_fd = -1;            // node 0: a bound socket to use instead, taken over
  int store_port = 0;            // node 0: where c10d's store listens; 0: any free port
  bool needs_c10d_store = true;  // node 0: the ranks' program knows torchrun's variables and nothing of ours
  double timeout_seconds = 300;
  std::string run_id = "none";  // must be the same on all nodes
  int restart_count = 0;
  int max_restarts = 0;
  Membership membership;  // several nodes: a token that all have, or open
  Say say;                // about strangers; empty: nothing is said
};

// This launcher's link to the others, to be passed to run_program as hooks.events.
class NodeLink : public ExternalEvents {
 public:
  // What run_program needs to know; on node 0 with the socket for the store, which passes to the caller. Once only.
  virtual ProgramJob take_job() = 0;
};

// Blocks until the launchers of all nodes are there; every connection proves its membership first. CommError naming the
// nodes that never came, or that node 0 did not answer; ConfigError when node 0 refuses this node.
std::unique_ptr<NodeLink> join_nodes(const NodeOptions& options);

}  // namespace orthant::launch
