// A job that is started again after a lost or hung rank: attempt after attempt until one ends well, the failure is not
// one that a new start can mend, too many restarts in a row brought no progress, or the job is told to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "orthant/launch/failure.h"
#include "orthant/launch/signal_watch.h"

namespace orthant::launch {

struct RestartOptions {
  int max_restarts = 0;  // in a row without progress; of all when progress is not known
  // The newest step that was saved, from which the next attempt goes on if it is whole; -1 before there is one. Empty:
  // the job keeps nothing.
  std::function<std::int64_t()> progress = {};
  // Whether the job was told to stop before `signals` began to watch. Empty: it was not.
  std::function<bool()> stop_requested = {};
  // Whether node 0 of a job on several hosts decides: every failure that a new start can mend leads to another attempt
  // then, and in its meeting the launcher learns whether there is one.
  bool decided_elsewhere = false;
  // Receives reports of attempts before the last, and what is done. Must be given.
  std::function<void(const std::string&)> say;
};

// Runs attempts, numbered from 0, and returns how the last one ended. A request to stop that finds no attempt running
// ends the job with 75, and so does one during an attempt that another would have followed. `signals` watches over all
// attempts, so that no request is lost between two of them.
Outcome run_attempts(const RestartOptions& options, SignalWatch& signals, const std::function<Outcome(int)>& run);

// The end of a job that was told to stop before its ranks were started, and between two attempts.
Outcome stopped_before_start();
Outcome stopped_between_attempts();

}  // namespace orthant::launch
