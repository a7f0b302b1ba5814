// How long a rank waits for others before it gives up on them, by what the job is doing. A hang in a step is to be
// found soon; reading weights and writing checkpoints may take long and are no hang. Who holds a Timeouts knows the
// phase; nothing here is global.
#pragma once

#include <string>
#include <string_view>

namespace orthant {

// Meeting, reading weights and the first step; training; saving a checkpoint.
enum class JobPhase { start, step, save };
const char* to_string(JobPhase phase);

struct Timeouts {
  double start_seconds = 300;
  double step_seconds = 120;
  double save_seconds = 900;

  static Timeouts all(double seconds) { return {seconds, seconds, seconds}; }

  double of(JobPhase phase) const;
  Timeouts times(double factor) const;

  friend bool operator==(const Timeouts&, const Timeouts&) = default;
};

// "start=300,step=120,save=900"
std::string to_string(const Timeouts& timeouts);

// "60": every phase; "start=300,step=60,save=900": those named, others by default. ConfigError that begins with `what`,
// the option that is read, unless each number is above 0 and at most 10^7, which every clock here can hold.
Timeouts parse_timeouts(std::string_view text, std::string_view what);

}  // namespace orthant
