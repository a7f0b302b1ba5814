// One child process per rank: its own process group, /dev/null as input, output through two pipes, default signal
// actions, and killed by the kernel when the launcher dies. What it runs is a function (fork) or a program (fork and
// exec).
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

struct RankProcess {
  int rank = 0;  // global
  pid_t pid = -1;
  Fd output;  // read ends, non-blocking
  Fd errors;
};

struct SpawnOptions {
  int rank = 0;
  std::vector<int> cores;              // bind the child to these; empty: leave it alone
  std::vector<int> close_in_child;     // descriptors of the launcher that a forked child must not hold
  std::vector<int> keep_in_child;      // close-on-exec here, but inherited by an executed program; -1 is passed over
  const rlimit* file_limit = nullptr;  // of open files in the child; null: as here
  // Installs handlers of SIGINT and SIGTERM in a forked child before one can reach it. An executed program, when this
  // is set, begins with both blocked. Empty: both end the child from the first moment on.
  std::function<void()> take_signals;
};

// Forks; the child runs `body` and leaves by _exit with its result after flushing. The calling process must have one
// thread only. An orthant::Error ends the child with its exit code, any other exception with 70, both with their text
// on stderr.
RankProcess fork_rank(const SpawnOptions& options, const std::function<int()>& body);

// Forks and executes argv with exactly these "NAME=value" variables. ConfigError when the program cannot be executed.
// Blocks until exec has happened.
RankProcess execute_rank(const SpawnOptions& options, const std::vector<std::string>& argv,
                         const std::vector<std::string>& variables);

// Which of this process' allowed cores each of `num_ranks` local ranks gets: equal neighbouring blocks, or one core
// each in turn when there are more ranks than cores. Local.
std::vector<std::vector<int>> deal_cores(int num_ranks);

}  // namespace orthant::launch
