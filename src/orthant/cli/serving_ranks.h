// The ranks of `orthant serve`: a process of its own starts them, again and again after they are lost, so that the one
// that serves outlives them. It is a fork made before the server has threads; its only children are ranks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "orthant/launch/sockets.h"

namespace orthant::cli {

// `attempt` runs the ranks once and answers their exit code; again as long as they are wanted, it may help, and fewer
// than `most_in_vain` attempts in a row ended soon.
int run_rank_attempts(int most_in_vain, const std::function<bool()>& wanted, const std::function<int()>& attempt);

class ServingRanks {
 public:
  // Forks; `run` is what the child does, and its exit code. The child begins when go() is called, and is told to end
  // when this process is gone. Must be called by the main thread, before there is another.
  explicit ServingRanks(const std::function<int()>& run);
  // Ends the child, asking first.
  ~ServingRanks();
  ServingRanks(const ServingRanks&) = delete;
  ServingRanks& operator=(const ServingRanks&) = delete;

  void go();
  // The exit code, once the child has ended. Never blocks.
  std::optional<int> exit_code();
  // Waits for the end; after `seconds` the child is asked by SIGTERM, and later killed.
  int wait(double seconds);

 private:
  std::optional<int> wait_until(launch::Clock::time_point deadline);

  pid_t pid_ = -1;
  launch::Fd go_;
  std::optional<int> exit_code_;
};

}  // namespace orthant::cli
