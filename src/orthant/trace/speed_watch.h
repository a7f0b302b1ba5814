// Looks at a run's steps while they are made, and says once what a user would want to know early: a rank that is slower
// than the others of its group, steps that became slower than they were, memory that grows. Rank 0 has it. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace orthant::trace {

struct WatchedStep {
  std::int64_t step = 0;
  double seconds = 0;
  std::int64_t peak_memory_bytes = 0;
  std::vector<double> busy_seconds = {};  // per rank: what it did not wait for others; 0: not told
};

class SpeedWatch {
 public:
  // Whoever does the same work: a rank's group by number. `place`: of a rank, for people ("dp=1").
  SpeedWatch(std::vector<int> group_of_rank, std::function<std::string(int)> place)
      : group_of_rank_(std::move(group_of_rank)), place_(std::move(place)) {}

  // Sentences that are new with this step.
  std::vector<std::string> step(const WatchedStep& step);

  static constexpr int kWindow = 50;           // steps
  static constexpr double kSlowerRank = 1.10;  // than the median of its group
  static constexpr double kSlowerStep = 1.20;  // than the best window before
  static constexpr double kMoreMemory = 1.10;  // than at the end of the first window

 private:
  void watch_ranks(const WatchedStep& step, std::vector<std::string>& said);
  void watch_steps(const WatchedStep& step, std::vector<std::string>& said);
  void watch_memory(const WatchedStep& step, std::vector<std::string>& said);

  std::vector<int> group_of_rank_;
  std::function<std::string(int)> place_;
  std::vector<int> slow_for_;   // per rank: steps in a row
  std::vector<double> excess_;  // per rank: its time over its group's in those steps, added up
  std::set<int> slow_said_;
  std::deque<double> window_;
  double best_median_ = 0;
  std::int64_t best_at_ = 0;
  bool slower_said_ = false;
  std::int64_t first_bytes_ = 0;
  std::int64_t last_bytes_ = 0;
  int windows_growing_ = 0;
  bool memory_said_ = false;
  std::int64_t seen_ = 0;
};

}  // namespace orthant::trace
