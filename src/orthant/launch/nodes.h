// A job on several hosts: one launcher per host, numbered by node rank. Node 0's launcher listens at the rendezvous,
// the others connect and both sides prove that they belong to the job. Before every attempt the launchers meet: when
// all are there each learns its place and the attempt's number. The connections stay open, so that a failure anywhere,
// or a launcher that falls silent, ends the attempt everywhere, and node 0 knows when all have ended. Node 0 alone
// decides whether another attempt follows: the others come to the next meeting and are told there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "orthant/launch/doorman.h"
#include "orthant/launch/external_events.h"
#include "orthant/launch/local_ranks.h"
#include "orthant/launch/signal_watch.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/token.h"

namespace orthant::launch {

struct NodeOptions {
  int num_nodes = 1;  // the most
  int node_rank = 0;
  int num_ranks = 1;             // on this node
  Endpoint rendezvous;           // node 0's host as the others reach it, and the port its launcher listens on
  std::string bind;              // node 0: the address to listen on instead of the rendezvous host's
  int listen_fd = -1;            // node 0: a bound socket to use instead, taken over
  int store_port = 0;            // node 0: where c10d's store listens; 0: any free port
  bool needs_c10d_store = true;  // node 0: the ranks' program knows torchrun's variables and nothing of ours
  double timeout_seconds = 300;  // how long a meeting waits, and how long another launcher may be silent
  std::string run_id = "none";   // must be the same on all nodes
  int max_restarts = 0;          // the same on all nodes; 0: there is one meeting
  int min_nodes = 0;             // an attempt may have so few of the nodes; the same on all; 0: it has all
  double regroup_seconds = 30;   // how long a meeting waits for more than these
  Membership membership;         // several nodes: a token that all have, or open
  Say say;                       // about strangers; empty: nothing is said
};

// This launcher's link to the others, to be passed to run_program as hooks.events: between two meetings it tells of one
// attempt.
class NodeLink : public ExternalEvents {
 public:
  // Blocks until the launchers of all nodes have met for the next attempt; every connection proves its membership
  // first. Nothing then; else how the job has ended: `signals` brought a request to stop, or another launcher has said
  // that it is over. CommError naming the nodes that never came, or that node 0 did not answer; ConfigError when node 0
  // refuses this node.
  virtual std::optional<Outcome> meet(SignalWatch& signals) = 0;

  // What run_program needs to know; on node 0 with the socket for the store, which passes to the caller. Once after
  // each meeting.
  virtual ProgramJob take_job() = 0;

  // Tells the others that this launcher comes to no further meeting, as the job has ended so for it. Never blocks.
  virtual void leave(const Outcome& outcome) = 0;
};

// On node 0 it listens from now on. ConfigError.
std::unique_ptr<NodeLink> join_nodes(const NodeOptions& options);

}  // namespace orthant::launch
