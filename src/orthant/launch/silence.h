// Whom a job waits for when ranks fall silent and nobody died: a rank that is stopped, or one that does not go on while
// the others wait. Judged by the state of the processes and by what ranks said last: actions of a step begin with "step
// N, ", and what is done between two steps (evaluation, a save) names the step, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/timeouts.h"

namespace orthant::launch {

struct RankState {
  int rank = 0;      // global
  char state = 'X';  // of its process, as /proc shows it: R runs, S sleeps, T is stopped, t traced, X and Z have ended
  std::string text;  // its last action
  double age_seconds = 0;  // of that
  JobPhase phase = JobPhase::start;
  double stopped_seconds = 0;  // while its process is stopped: for how long
  int64_t held_bytes = 0;      // by its tensors
};

// Whether a process is stopped, by a signal or a debugger.
bool is_stopped(char process_state);
inline bool is_stopped(const RankState& rank) {
  return is_stopped(rank.state);
}

// Whether the action belongs to a training step.
bool is_in_step(const std::string& action);

// Whether the action ends only when other ranks do their part: collectives, sums, messages from a neighbour.
bool is_wait(const std::string& action);

// The rank that holds the others up; nothing when it cannot be told. A stopped process comes first. Else, of those that
// named a step and then were silent for as long as `silence` says for their phase (0: of none), one that is behind
// others or does not wait; among several the one in the earliest step, then one that does not wait, one that runs, the
// longest silent. Ended ranks tell only how far the job has come.
std::optional<RankState> find_suspect(const std::vector<RankState>& ranks, const Timeouts& silence);

// Of those in a step that have been silent for as long as `silence` says for their phase the longest silent.
std::optional<RankState> longest_silent(const std::vector<RankState>& ranks, const Timeouts& silence);

// "rank 2: silent for 12.1 s after: step 5, F layers.3 m0", "rank 1: stopped (SIGSTOP) for 5.0 s while in: step 5,
// ...".
std::string describe(const RankState& state);

}  // namespace orthant::launch
