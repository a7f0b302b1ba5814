// The local launcher: one process per rank on this host, either forks of this process that run a function, or a program
// with torchrun's variables. Each rank inherits a connection to the store that this process serves. Both return when
// every rank has ended and leave no process, port, descriptor or file but the logs.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orthant/base/timeouts.h"
#include "orthant/launch/external_events.h"
#include "orthant/launch/failure.h"
#include "orthant/launch/job.h"
#include "orthant/launch/output_pump.h"
#include "orthant/launch/signal_watch.h"

namespace orthant::launch {

struct LocalOptions {
  int num_ranks = 1;              // on this host
  std::filesystem::path log_dir;  // receives rank-R.log, appended to; empty: no logs
  OutputMode output = OutputMode::kRankZero;
  bool bind_cores = false;
  double grace_seconds = 1.5;     // between SIGTERM and SIGKILL when the job has failed
  double killed_seconds = 5;      // from SIGKILL, or its death, until a rank that is still there is given up
  double unreported_seconds = 2;  // from the death of a rank until it counts as ended though no report came
  std::string bind_address;       // forked ranks: what their transports listen on; empty: loopback
  int restart_count = 0;          // forked ranks: how often this job was started before
  // A rank that is stopped, or in a training step and silent, for longer than this fails the job; 0: never.
  Timeouts timeouts = Timeouts::all(0);
  // Installs the handlers of ranks that take SIGINT and SIGTERM themselves: no such signal ends a rank before it has
  // them. Executed ranks begin with both blocked and open them when they are ready.
  std::function<void()> take_signals;
  SignalWatch* signals = nullptr;  // of a caller that watches over several attempts; null: for this call alone
  // How many files ranks may open; null: as many as this process. For a caller that has raised its own limit.
  const rlimit* rank_file_limit = nullptr;
  int stdout_fd = 1;  // where the ranks' output goes
  int stderr_fd = 2;
};

// Serves c10d's store on `listen_fd`, which it owns from then on, until the returned object is dropped at the end of
// the job: for programs that know torchrun's variables and nothing of ours. Called once, after the ranks were started:
// those that connect before just wait.
using ServeStore = std::function<std::shared_ptr<void>(int listen_fd, const std::string& host, int port)>;

// Forks one process per rank; each runs `body` with its own Job and leaves with the returned code. This process must
// have a single thread and must not have used a second OpenMP thread or a GPU. Blocks until all ranks have ended.
Outcome run_forked(const LocalOptions& options, const std::function<int(const Job&)>& body);

// This host's part of a job that may span several.
struct ProgramJob {
  int rank_offset = 0;  // global rank of this host's first
  int world_size = 0;   // 0: the ranks of this host
  int node_rank = 0;
  int num_nodes = 1;
  int node_index = -1;                       // among the nodes that are there; -1: the node's rank
  std::string master_address = "127.0.0.1";  // where c10d's store is, and its port; on several hosts 0: there is none
  int master_port = 0;
  // A listening socket for the store at master_address:master_port, taken over by the call. -1: the store is on another
  // host, or, in a job of one host, bound on loopback by the call where the program may need it.
  int listen_fd = -1;
  std::string run_id = "none";
  std::string job_name = {};  // which no other job has; empty: ranks are told none
  int restart_count = 0;
  int max_restarts = 0;
  int ranks_per_device = 1;  // see shared_devices.h
  // On several hosts: on node 0 the proved connections of all other ranks to the store that it serves; elsewhere one
  // for each rank of this host, which inherits it, so that no rank has the token. Taken over by the call.
  std::vector<int> store_connections = {};
};

struct ProgramHooks {
  ServeStore after_spawn;  // on the host of the store
  ExternalEvents* events = nullptr;
};

// Starts argv once per rank with base_environment plus torchrun's variables and the descriptors in ORTHANT_ACTIVITY and
// ORTHANT_STORE, the only ones it inherits. c10d's store is served too, unless all ranks are here and argv is this very
// program, which needs none: MASTER_ADDR and MASTER_PORT are not set then. ConfigError when argv cannot be executed.
// Blocks until all ranks have ended, here and as far as hooks.events knows.
Outcome run_program(const LocalOptions& options, const std::vector<std::string>& argv,
                    const Environment& base_environment, const ProgramJob& job = {}, const ProgramHooks& hooks = {});

// Whether executing `name`, by path or found in PATH, starts this very program again: its ranks need no store of c10d.
// Local.
bool is_this_program(const std::string& name);

// base_environment plus what torchrun would set for this local rank, and ORTHANT_JOB. Local.
Environment rank_environment(const Environment& base_environment, const ProgramJob& job, int num_ranks, int local_rank);

}  // namespace orthant::launch
