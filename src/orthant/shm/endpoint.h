// One rank's end of all shared-memory communication: its arena, its peers', the doorbell it sleeps on, and the thread
// that moves operations on while the program computes.
//
// Note [Progress]
// An operation is moved on by the thread that waits for it; while it cannot move, that thread moves on whatever else is
// unfinished, so that ranks which wait for each other on different lines never starve each other. Only when something
// remains to be done before anybody waits (a tensor larger than the slots, a call queued behind another) is the
// progress thread woken; it serves its lines in turn, one chunk at a time, leaves a line alone while somebody waits on
// it, and sleeps on the doorbell when nothing moves and on a word of its own when nothing needs it. So small blocking
// calls never meet another thread, and nothing spins when idle.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "orthant/shm/arena.h"
#include "orthant/shm/line.h"

namespace orthant::shm {

class Endpoint {
 public:
  // `num_local_ranks` tells how crowded the cores are: with more ranks than cores waiting threads sleep sooner.
  Endpoint(int rank, size_t arena_bytes, int num_local_ranks);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  // Tells peers that this rank makes no more calls.
  ~Endpoint();

  int rank() const { return rank_; }
  Arena& arena() { return arena_; }

  // Opens the memory that a peer handed over, as a descriptor that stays the caller's; the own rank's is there from the
  // start. `pidfd`, taken over, is readable when the peer's process has ended; -1 for ranks of this process. CommError
  // when it is not the memory of a rank.
  void connect(int rank, int memory_fd, int pidfd);
  const ArenaView& peer(int rank) const { return peers_.at(rank).arena; }

  // Whether the rank has said that it leaves, or its process has ended. Local.
  bool is_gone(int rank) const;

  // Wakes the rank's waiting threads.
  void ring(int rank) { peer(rank).header().doorbell.ring(); }

  // Blocks until the operation of this line is done; throws its error. A peer that dies is noticed within a fraction of
  // a second, one that is late after the line's timeout.
  void wait(const std::shared_ptr<Line>& line, Operation& operation);

  // To be told of every line that has just got an unfinished operation; `needs_thread` wakes the progress thread for
  // it.
  void open(const std::shared_ptr<Line>& line, bool needs_thread);

 private:
  struct Peer {
    ArenaView arena;
    int pidfd = -1;  // readable when the process has ended; -1 for ranks of this process
  };

  bool spin(uint32_t seen);
  void step_aside();
  std::optional<int> first_gone(const std::vector<int>& ranks) const;
  void check_peers(Line& line);
  std::vector<std::shared_ptr<Line>> open_lines();
  bool advance_others(const Line* own);
  bool advance_as_thread(bool& waiting);
  void run_progress();

  int rank_;
  Arena arena_;
  std::map<int, Peer> peers_;
  int spin_rounds_;
  std::chrono::steady_clock::time_point stepped_at_{};

  std::mutex open_mutex_;
  std::vector<std::shared_ptr<Line>> open_;     // lines with unfinished operations, and a few that have just finished
  std::atomic<uint32_t> calls_for_thread_ = 0;  // the progress thread sleeps here when nothing needs it
  std::atomic<bool> stopping_ = false;
  std::thread progress_;
};

}  // namespace orthant::shm
