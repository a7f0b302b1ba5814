// A run that is looked at again and again while it goes on, at a cost that it does not feel: what has come is read, and
// a look that took long is followed by a long pause.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/launch/sockets.h"
#include "orthant/report/diagnosis.h"
#include "orthant/report/page.h"

namespace orthant::watch {

class RunWatch {
 public:
  explicit RunWatch(const std::string& path);

  // Looks when it is time: a second after the last look, or fifty times as long as it took. Whether it has looked.
  bool look(launch::Clock::time_point now = launch::Clock::now());
  // Now, whenever the last look was.
  void look_now();
  launch::Clock::time_point next_look() const { return next_; }

  // One run, as pages and texts take it; empty before the run has begun.
  const std::vector<report::ReportedRun>& runs() const { return runs_; }
  const report::RunFolder& run() const { return runs_.front().run; }
  report::RunState state() const { return state_; }
  // Nothing goes on, and nobody has started it again for ten seconds.
  bool has_ended() const;

 private:
  report::RunReader reader_;
  std::vector<report::ReportedRun> runs_;
  report::RunState state_ = report::RunState::pauses;
  std::optional<launch::Clock::time_point> pauses_since_;
  launch::Clock::time_point next_{};
};

}  // namespace orthant::watch
