// Signs of life between two launchers: each side sends one now and then, and is lost when it has sent nothing for the
// whole timeout. A connection alone does not tell: that of a stopped launcher, or of one behind a broken network, stays
// open. Time is passed in.
#pragma once

#include <optional>
#include <string>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

class Heartbeat {
 public:
  explicit Heartbeat(double timeout_seconds, Clock::time_point now = Clock::now());

  // The other side has sent something.
  void heard(Clock::time_point now) { heard_at_ = now; }

  // Whether a sign of life is due; it counts as sent then.
  bool is_due(Clock::time_point now);

  // "its launcher was silent for 5.0 s" once the other side is lost. Whoever asks has read what had arrived.
  std::optional<std::string> silence(Clock::time_point now) const;

  // When to ask again.
  Clock::time_point next() const;

 private:
  double timeout_seconds_;
  Clock::duration interval_;
  Clock::time_point heard_at_;
  Clock::time_point send_at_;
};

}  // namespace orthant::launch
