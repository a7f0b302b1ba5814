// The board on which ranks of a checked run say what they wait for, so that a deadlock or a call that never comes is
// found by looking, not by a timeout. Kept in the store; written only when a thread has already waited for a while.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "orthant/comm/store.h"

namespace orthant::comm {

class Board {
 public:
  Board(Store store, int rank, int world_size) : store_(std::move(store)), rank_(rank), world_size_(world_size) {}

  struct Wait {
    std::string call;          // unique: names channel and sequence number
    std::string site;          // where it was made
    std::vector<int> missing;  // global ranks that have not made the matching call
  };

  // The calling thread makes calls on this rank. Local.
  void caller();

  // The calling thread is blocked in `wait`, or no longer. Local.
  void blocked(const Wait& wait);
  void unblocked();

  // This rank makes no more calls. Local.
  void left();
  // True also for a rank whose process has ended, where that can be seen.
  bool has_left(int rank);

  // How to see that a rank's process has ended. Set before the board is used.
  void watch(std::function<bool(int rank)> is_gone) { is_gone_ = std::move(is_gone); }

  // Waits until every rank has left or the time is over. Only for the rank that serves the store.
  void wait_for_leavers(double timeout_seconds);

  // The waits of ranks, this one among them, that can only wait for each other, as text; nothing when there are none. A
  // deadlock is proven when two looks some time apart give the same text.
  std::optional<std::string> find_deadlock();

 private:
  // What a rank has said: how many of its threads make calls, and what the blocked ones wait for.
  struct Entry {
    size_t num_callers = 0;
    std::vector<Wait> waits;
  };

  void publish();  // under mutex_
  Entry read(int rank);
  std::string key(const char* kind, int rank) const;

  Store store_;
  int rank_;
  int world_size_;
  std::function<bool(int)> is_gone_;
  std::mutex mutex_;
  std::set<std::thread::id> callers_;
  std::map<std::thread::id, Wait> waits_;
};

}  // namespace orthant::comm
