#include "orthant/launch/restarts.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant::launch {
namespace {

// Counts the restarts since the job last got further.
class Patience {
 public:
  explicit Patience(const RestartOptions& options) : options_(options) {
    if (options_.progress) reached_ = options_.progress();
  }

  // After an attempt that failed.
  void look() {
    if (!options_.progress) return;
    const auto now = options_.progress();
    if (now <= reached_) return;
    reached_ = now;
    in_vain_ = 0;
  }

  bool ended() const { return in_vain_ >= options_.max_restarts; }

  // "" where there is nothing to add to the report of the failure.
  std::string last_words() const {
    if (!options_.progress || options_.max_restarts == 0) return "";
    const auto restarts = fmt::format("{} restart{}", in_vain_, in_vain_ == 1 ? "" : "s");
    if (reached_ < 0) return restarts + " without progress, not even a first checkpoint: giving up";
    return fmt::format("{} without progress since step {}: giving up", restarts, reached_);
  }

  std::string restart(int attempt) {
    ++in_vain_;
    if (!options_.progress) return fmt::format("starting all ranks again ({} of {})", in_vain_, options_.max_restarts);
    const auto place = reached_ < 0 ? "where the job began" : fmt::format("step {}", reached_);
    return fmt::format("starting all ranks again from {}: restart {}, {} of {} without progress", place, attempt,
                       in_vain_, options_.max_restarts);
  }

 private:
  const RestartOptions& options_;
  std::int64_t reached_ = -1;
  int in_vain_ = 0;
};

}  // namespace

Outcome stopped_before_start() {
  return {.exit_code = kStoppedExitCode,
          .report = "stopped on request before the first step; nothing was changed",
          .stop_asked = true};
}

Outcome stopped_between_attempts() {
  return {.exit_code = kStoppedExitCode,
          .report = "stopped on request; the ranks are not started again and what was saved stays",
          .stop_asked = true};
}

Outcome run_attempts(const RestartOptions& options, SignalWatch& signals, const std::function<Outcome(int)>& run) {
  if ((options.stop_requested && options.stop_requested()) || signals.asked_to_stop()) return stopped_before_start();
  Patience patience(options);
  for (int attempt = 0;; ++attempt) {
    auto outcome = run(attempt);
    if (outcome.regroups) {
      options.say("hosts have come: meeting them for another attempt");
      continue;
    }
    if (!may_restart(outcome)) return outcome;
    patience.look();
    if (!options.decided_elsewhere && patience.ended()) {
      const auto words = patience.last_words();
      if (words.empty()) return outcome;
      options.say(outcome.report);
      outcome.report = words;
      return outcome;
    }
    options.say(outcome.report);
    if (outcome.stop_asked || signals.asked_to_stop()) return stopped_between_attempts();
    options.say(options.decided_elsewhere ? "meeting the other hosts for another attempt"
                                          : patience.restart(attempt + 1));
  }
}

}  // namespace orthant::launch
