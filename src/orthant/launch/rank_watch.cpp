#include "orthant/launch/rank_watch.h"

#include <algorithm>

#include "orthant/launch/process_state.h"

namespace orthant::launch {
namespace {

constexpr double kMostLookSeconds = 0.25;   // between two looks, and at most that part of a timeout
constexpr double kLeastLookSeconds = 0.02;  // when one is about due
constexpr double kSleptSeconds = 5.0;       // a look so much too late: the launcher itself did not run
// How much longer than those who wait for it a silent rank has, at most, and as a part of its timeout.
constexpr double kMostSayMoreSeconds = 0.4;
constexpr double kSayMorePart = 0.1;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

RankWatch::RankWatch(const ActivityBoard& board, const Timeouts& timeouts) : board_(board), timeouts_(timeouts) {}

void RankWatch::add(int rank, pid_t pid) {
  ranks_.push_back({rank, pid});
}

void RankWatch::ended(int rank) {
  for (auto& one : ranks_) {
    if (one.rank == rank) one.alive = false;
  }
}

void RankWatch::look() {
  const auto now = Clock::now();
  for (auto& one : ranks_) {
    const bool stopped = one.alive && is_stopped(process_state(one.pid));
    if (!stopped) {
      one.stopped_since.reset();
    } else if (!one.stopped_since) {
      one.stopped_since = now;
      next_look_ = std::min(next_look_, now + seconds(kLeastLookSeconds));  // which finds out when it is overdue
    }
  }
}

std::vector<RankState> RankWatch::states() const {
  const auto now = Clock::now();
  std::vector<RankState> states;
  auto entries = board_.entries();
  for (size_t i = 0; i < std::min(entries.size(), ranks_.size()); ++i) {
    const auto& one = ranks_[i];
    auto& entry = entries[i];
    states.push_back({.rank = one.rank,
                      .state = one.alive ? process_state(one.pid) : 'X',
                      .text = std::move(entry.text),
                      .age_seconds = entry.age_seconds,
                      .phase = entry.phase,
                      .stopped_seconds = one.stopped_since ? seconds_between(*one.stopped_since, now) : 0,
                      .held_bytes = entry.held_bytes});
  }
  return states;
}

std::optional<RankState> RankWatch::find_awaited(const std::vector<RankState>& states) const {
  return find_suspect(states, timeouts_.times(0.5));
}

Timeouts RankWatch::silence() const {
  const auto with_more = [](double timeout) { return timeout + std::min(kMostSayMoreSeconds, kSayMorePart * timeout); };
  return {with_more(timeouts_.start_seconds), with_more(timeouts_.step_seconds), with_more(timeouts_.save_seconds)};
}

// Whoever stopped the launcher has stopped the ranks, too: all that has passed counts for nothing.
void RankWatch::begin_anew(Clock::time_point now) {
  watching_since_ = now;
  for (auto& one : ranks_) one.stopped_since.reset();
}

std::optional<RankState> RankWatch::find_overdue() {
  const auto now = Clock::now();
  if (!next_look() || now < next_look_) return std::nullopt;
  if (now - next_look_ > seconds(kSleptSeconds)) begin_anew(now);
  look();
  const auto states = this->states();
  next_look_ = earliest_end(states, now);
  for (const auto& state : states) {
    if (is_stopped(state) && state.stopped_seconds >= timeouts_.of(state.phase)) return state;
  }
  const auto silent = longest_silent(states, silence());
  if (!silent || now - watching_since_ < seconds(silence().of(silent->phase))) return std::nullopt;
  return find_awaited(states).value_or(*silent);
}

// When the first of them is overdue if nothing changes, but neither at once nor late.
Clock::time_point RankWatch::earliest_end(const std::vector<RankState>& states, Clock::time_point now) const {
  const double shortest = std::min({timeouts_.start_seconds, timeouts_.step_seconds, timeouts_.save_seconds});
  double left = std::min(1.0, shortest) * kMostLookSeconds;
  for (const auto& state : states) {
    if (is_stopped(state)) left = std::min(left, timeouts_.of(state.phase) - state.stopped_seconds);
    if (is_in_step(state.text)) left = std::min(left, silence().of(state.phase) - state.age_seconds);
  }
  return now + seconds(std::max(left, kLeastLookSeconds));
}

std::optional<Clock::time_point> RankWatch::next_look() const {
  const bool any_alive = std::ranges::any_of(ranks_, &Rank::alive);
  return timeouts_ == Timeouts::all(0) || !any_alive ? std::nullopt : std::optional(next_look_);
}

}  // namespace orthant::launch
