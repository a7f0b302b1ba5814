#include "orthant/launch/silence.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <tuple>

namespace orthant::launch {
namespace {

constexpr std::string_view kStep = "step ";

bool has_ended(const RankState& rank) {
  return rank.state == 'X' || rank.state == 'Z';
}

// The number after "step ", as in "saving the checkpoint of step 5"; -1 when there is none.
std::int64_t step_of(const std::string& action) {
  const auto word = action.find(kStep);
  if (word == std::string::npos) return -1;
  std::int64_t step = -1;
  std::from_chars(action.data() + word + kStep.size(), action.data() + action.size(), step);
  return step;
}

// What follows "step N, ".
std::string_view doing(const std::string& action) {
  const auto comma = action.find(", ");
  return comma == std::string::npos ? std::string_view(action) : std::string_view(action).substr(comma + 2);
}

}  // namespace

bool is_stopped(char process_state) {
  return process_state == 'T' || process_state == 't';
}

bool is_in_step(const std::string& action) {
  return action.starts_with(kStep);
}

bool is_wait(const std::string& action) {
  const auto now = doing(action);
  for (const std::string_view kind : {"gather ", "reduce ", "send", "receive", "sum of "}) {
    if (now.starts_with(kind)) return true;
  }
  return now.find("waiting for ") != std::string_view::npos;
}

std::optional<RankState> find_suspect(const std::vector<RankState>& ranks, const Timeouts& silence) {
  std::int64_t newest_step = -1;
  for (const auto& rank : ranks) newest_step = std::max(newest_step, step_of(rank.text));
  const auto order = [](const RankState& rank) {
    return std::tuple(!is_stopped(rank), step_of(rank.text), is_wait(rank.text), rank.state != 'R', -rank.age_seconds);
  };
  std::optional<RankState> suspect;
  for (const auto& rank : ranks) {
    if (has_ended(rank)) continue;
    const auto step = step_of(rank.text);
    const auto limit = silence.of(rank.phase);
    const bool silent = limit > 0 && step >= 0 && rank.age_seconds >= limit;
    const bool holds_up = step < newest_step || !is_wait(rank.text);
    if (!is_stopped(rank) && !(silent && holds_up)) continue;
    if (!suspect || order(rank) < order(*suspect)) suspect = rank;
  }
  return suspect;
}

std::optional<RankState> longest_silent(const std::vector<RankState>& ranks, const Timeouts& silence) {
  std::optional<RankState> found;
  for (const auto& rank : ranks) {
    if (has_ended(rank) || !is_in_step(rank.text) || rank.age_seconds < silence.of(rank.phase)) continue;
    if (!found || rank.age_seconds > found->age_seconds) found = rank;
  }
  return found;
}

std::string describe(const RankState& state) {
  if (!is_stopped(state)) {
    return fmt::format("rank {}: silent for {:.1f} s after: {}", state.rank, state.age_seconds, state.text);
  }
  const auto how = state.state == 'T' ? "SIGSTOP" : "by a debugger";
  const auto text = fmt::format("rank {}: stopped ({}) for {:.1f} s", state.rank, how, state.stopped_seconds);
  return state.text.empty() ? text : fmt::format("{} while in: {}", text, state.text);
}

}  // namespace orthant::launch
