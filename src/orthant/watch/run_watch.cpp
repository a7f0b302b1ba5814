#include "orthant/watch/run_watch.h"

#include <algorithm>

namespace orthant::watch {
namespace {

constexpr auto kShortestPause = std::chrono::seconds(1);
constexpr int kPausePerLook = 50;
constexpr auto kRestartPatience = std::chrono::seconds(10);

}  // namespace

RunWatch::RunWatch(const std::string& path) : runs_(1) {
  runs_.front().run.path = path;
  look_now();
}

bool RunWatch::look(launch::Clock::time_point now) {
  if (now < next_) return false;
  look_now();
  return true;
}

void RunWatch::look_now() {
  const auto begin = launch::Clock::now();
  auto& [run, findings] = runs_.front();
  reader_.look(run);
  const auto observed = report::observe(run);
  state_ = report::state_of(run, observed);
  if (state_ != report::RunState::pauses) {
    pauses_since_.reset();
  } else if (!pauses_since_) {
    pauses_since_ = begin;
  }
  const bool begun = !run.ranks.empty() || !run.metrics.steps.empty();
  if (begun || has_ended()) {
    findings = report::diagnose(run, observed);
  } else {
    findings = {{.cause = "running", .confidence = 0.9, .answer = "the run has not begun", .evidence = {}, .fix = ""}};
  }
  const auto end = launch::Clock::now();
  next_ = end + std::max<launch::Clock::duration>(kShortestPause, kPausePerLook * (end - begin));
}

bool RunWatch::has_ended() const {
  return state_ == report::RunState::ended ||
         (pauses_since_ && launch::Clock::now() - *pauses_since_ >= kRestartPatience);
}

}  // namespace orthant::watch
