// Who this process is in a job and where the ranks meet. Filled by rank detection or by our own launcher, read by
// `comm`.
#pragma once

#include <map>
#include <string>

#include "orthant/launch/token.h"

namespace orthant::launch {

// A snapshot of environment variables. Detection reads this, never the process environment, so tests can hold many.
using Environment = std::map<std::string, std::string>;

// Tells an executed rank the name of its job.
inline constexpr const char* kJobVariable = "ORTHANT_JOB";

// Where the ranks' store is and which address this rank's own sockets may use.
struct Rendezvous {
  std::string host = "127.0.0.1";
  int port = 0;
  // A listening socket to serve the store on, owned by rank 0; -1 elsewhere.
  int listen_fd = -1;
  // A connection to the job's store, kept by this process: inherited from our launcher, which has proved it where it
  // leads to another host, or made by meet() to rank 0 on this host, which has yet to let this rank in
  // (enter_meeting()); -1: there is none.
  int store_fd = -1;
  // True when a launcher serves the store itself, so that every rank is a client (torchrun's agent store).
  bool served_by_launcher = false;
  // Put before every key, so that attempts of a restarted job do not meet each other's keys.
  std::string prefix = {};
  // Address of this host that transports listen on. Loopback unless ranks live on several hosts or the user says
  // otherwise; empty between detect() and meet(), which finds it.
  std::string bind_address = "127.0.0.1";
  // Not empty when all ranks are on this host and no launcher serves their store: rank 0 then serves it at a
  // Unix-domain socket of this name, for processes of its user alone.
  std::string meeting_key = {};
  // How ranks on several hosts that serve their store themselves know each other.
  Membership membership = {};
};

struct Job {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  // Which launcher told us: "orthant" (ranks that it forked; those it executes say "torchrun"), "torchrun", "Open MPI",
  // "MPICH", "Slurm", "PALS", "LSF", "flags".
  std::string launcher = "orthant";
  bool executed_by_us = false;  // by `orthant launch`, or by our launcher of ranks that use CUDA
  int restart_count = 0;        // how often the launcher has started this job again: the number of the attempt
  std::string name = {};        // of this very job, which no other has; empty where its launcher gives it none
  Rendezvous rendezvous = {};

  // Whether our launcher started this rank: it puts the rank in front of every line of stderr, and takes
  // kPeerLostExitCode for the consequence of another rank's end.
  bool is_launched_by_us() const { return launcher == "orthant" || executed_by_us; }
};

}  // namespace orthant::launch
