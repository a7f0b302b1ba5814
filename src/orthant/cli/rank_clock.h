// Times pieces of work on all ranks at once: cores share memory and caches, and a step has all of them busy. Every
// piece is timed in several rounds that go through all of them. What else the machine does for a while spoils one round
// of each and not all rounds of one, so that medians tell pieces apart. Steps of many milliseconds have their share of
// interruptions: every piece is longer by that of all rounds.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "orthant/comm/group.h"

namespace orthant::cli {

class RankClock {
 public:
  RankClock(comm::Group group, at::Device device) : group_(std::move(group)), device_(device) {}

  enum class Kind {
    alone,
    exchange,  // waits for other ranks, and so for their interruptions
  };

  // A piece of work to be timed, and its number. Ranks add the same ones in one order; what a call refers to must live
  // until run() returns.
  std::size_t add(std::function<void()> call, Kind kind = Kind::alone);

  // Times all of them in so many rounds; `begins` is told each round before it begins, from 1 on. Short calls are made
  // many times a round. Collective over the group.
  void run(int rounds, const std::function<void(int round)>& begins);

  // Seconds of one call, interruptions included, on average over the ranks.
  double seconds(std::size_t number) const { return pieces_.at(number).seconds; }
  // Their share in the time of a rank on its own.
  double interrupted() const { return interrupted_; }

  comm::Group group() const { return group_; }
  at::Device device() const { return device_; }

 private:
  struct Piece {
    std::function<void()> call;
    Kind kind = Kind::alone;
    int calls = 1;  // a round
    double seconds = 0;
  };

  double time(const Piece& piece);
  double own_interruptions(const std::vector<std::vector<double>>& samples);
  double agreed(double value, comm::Reduction reduction);

  comm::Group group_;
  at::Device device_;
  std::vector<Piece> pieces_;
  double interrupted_ = 0;
};

// Work on a GPU ends when the device says so. Nothing on a CPU.
void synchronize(const at::Device& device);

}  // namespace orthant::cli
