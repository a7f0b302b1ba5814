// Commands that run on many ranks: their common options, and the one way they get their ranks. Under a launcher they
// join it; otherwise they start local ranks themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/log.h"
#include "orthant/base/timeouts.h"
#include "orthant/cli/command.h"
#include "orthant/comm/communicator.h"
#include "orthant/files/folder_lock.h"
#include "orthant/launch/detect.h"
#include "orthant/launch/failure.h"
#include "orthant/launch/job.h"
#include "orthant/launch/token.h"
#include "orthant/mesh/mesh.h"

namespace orthant::cli {

inline constexpr int kDifferentExitCode = 1;  // a comparison failed

inline constexpr int kMostLocalRanks = 1024;  // that a command starts on one host

struct RankOptions {
  std::string mesh;  // empty: `dp` over whatever world there is
  std::string order;
  std::string device = "auto";
  std::string backend = "auto";
  int threads = 0;                              // per rank; 0: 1 on CPU
  std::string timeout = to_string(Timeouts());  // as parse_timeouts() reads it
  bool check_collectives = false;
  std::string interface;  // whose address is bind_address, and where NCCL's sockets go
  std::string bind_address;
  std::string launcher;
  std::string rendezvous;
  launch::TokenSource tokens;   // of the command line; ranks of a foreign launcher on several hosts need a token
  launch::DetectOptions place;  // --rank and the like
  int max_restarts = 0;
  bool dry_run = false;
  int ranks_per_device = 0;  // over NCCL; 0: not said, which is one
  int ranks_per_host = 0;    // as a dry run draws the mesh; 0: all on one
  // Of the command, not of the user.
  bool compares = false;  // exit code 1 is its answer, and said
  bool watched = false;   // one rank, too, is a process of its own, so that somebody can tell of its death
  // For commands that take SIGINT and SIGTERM themselves: installs the handlers in a rank, and says whether a signal
  // has come. A request that comes before ranks are started ends the command with 75.
  std::function<void()> take_signals = {};
  std::function<bool()> stop_requested = {};
  std::function<std::int64_t()> progress = {};  // the step a restart would go on from, -1: none. Empty: nothing is kept
  std::vector<std::string> rank_words = {};     // an option and its value, which ranks that are executed get instead
  std::vector<std::string> own_flags = {};      // options without a value, ...
  std::vector<std::string> own_options = {};    // ... and with one, that ranks which are executed do not get
  std::string log_dir;
  bool bind_cores = false;
};

void add_rank_options(OptionParser& app, RankOptions& options);

// How long ranks wait for one another. ConfigError.
Timeouts timeouts_of(const RankOptions& options);

// What a rank of a command is given. Nothing is connected yet.
struct RankContext {
  launch::Job job;
  Mesh mesh;
  comm::CommOptions comm;
  Log log;

  bool is_first() const { return job.rank == 0; }
};

// A line of the launcher on stderr; an empty text says nothing.
void say(const std::string& text);

// Adds how an attempt ended to log/launcher.jsonl of its run, where a rank has told of a folder: orthant doctor reads
// it. Not in a folder without room, nor in one that a later attempt has taken over.
void keep_verdict(const launch::Outcome& outcome, const FolderWriter& writer = {});

// Says on stderr which rank failed, if one did; returns the exit code.
int report(const launch::Outcome& outcome);

// ConfigError for values that no rank can use. Local.
void check_rank_options(const RankOptions& options);

// Who the launcher that started this process says it is; nothing without one. Opens no socket.
std::optional<launch::Job> job_of_launcher(const RankOptions& options, const launch::Environment& environment);

// The device and backend of a rank: NCCL where ranks have GPUs of their own, or share them on purpose, and the mesh is
// one that it carries. ConfigError for a backend or device that is not to be had here.
comm::CommOptions comm_options(const RankOptions& options, const Context& context, const launch::Job& job,
                               const Mesh& mesh);

// Runs `body` on every rank and returns the command's exit code. Without a launcher the world is the mesh's, and
// `default_world_size` when no mesh is given. Only rank 0 may write to stdout.
int run_on_ranks(const RankOptions& options, Context& context, int default_world_size,
                 const std::function<int(RankContext&)>& body);

}  // namespace orthant::cli
