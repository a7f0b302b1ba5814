// The board on which ranks of a checked run say what they wait for, so that a deadlock or a call that never comes is
// found by looking, not by a timeout. Kept in the store; written only when a rank has already waited for a while.
#pragma once

#include <optional>
#include <string>
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

  // This rank's thread of control is blocked in `wait`; replaces what was said before. Local.
  void blocked(const Wait& wait);
  void unblocked();

  // This rank makes no more calls. Local.
  void left();
  bool has_left(int rank);

  // Waits until every rank has left or the time is over: rank 0 stays, since it may serve the store. Returns who
  // remains.
  std::vector<int> wait_for_leavers(double timeout_seconds);

  // A chain of blocked ranks that begins and ends at this one, as text; nothing when there is none. A deadlock is
  // proven when two looks some time apart give the same text.
  std::optional<std::string> find_cycle();

 private:
  std::optional<Wait> read(int rank);
  std::string key(const char* kind, int rank) const;

  Store store_;
  int rank_;
  int world_size_;
};

}  // namespace orthant::comm
