// Who of this host's ranks holds the job up, by the states of their processes and by what they said last. The launcher
// sees a stopped process at once, so a rank that is stopped for a whole timeout is named then, whatever the others wait
// for; one that is silent in a step gets a little longer, so that those who wait for it can say more.
#pragma once

#include <optional>
#include <vector>

#include "orthant/launch/activity_board.h"
#include "orthant/launch/silence.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

class RankWatch {
 public:
  // A timeout of 0 is none.
  RankWatch(const ActivityBoard& board, const Timeouts& timeouts);

  // In the order of the board's slots.
  void add(int rank, pid_t pid);
  void ended(int rank);

  // Notes who is stopped: to be called when a child process has changed its state.
  void look();

  // All ranks as they are now, in the order they were added.
  std::vector<RankState> states() const;

  // The rank that others waited for who have given up; `states` are of that moment. Nothing when it cannot be told.
  std::optional<RankState> find_awaited(const std::vector<RankState>& states) const;

  // The rank that keeps the job from going on: stopped or silent for longer than its phase allows.
  std::optional<RankState> find_overdue();

  // When find_overdue() is to be called next; nothing without timeouts.
  std::optional<Clock::time_point> next_look() const;

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = -1;
    bool alive = true;
    std::optional<Clock::time_point> stopped_since = {};
  };

  void begin_anew(Clock::time_point now);
  Timeouts silence() const;
  Clock::time_point earliest_end(const std::vector<RankState>& states, Clock::time_point now) const;

  const ActivityBoard& board_;
  Timeouts timeouts_;
  std::vector<Rank> ranks_;
  Clock::time_point watching_since_ = Clock::now();
  Clock::time_point next_look_ = Clock::now();
};

}  // namespace orthant::launch
