#include "orthant/schedule/stage_clock.h"

#include <algorithm>

namespace orthant {
namespace {

constexpr double kNotYet = -1;

}  // namespace

StageClock::StageClock(const StageEdges& edges, const StageCosts& costs, const std::vector<int>& pp_coordinates,
                       int microbatches)
    : edges_(edges),
      costs_(costs),
      pp_coordinates_(pp_coordinates),
      forward_(edges.before.size(), std::vector<double>(static_cast<std::size_t>(microbatches), kNotYet)),
      backward_(forward_) {}

double StageClock::arrival(const Ends& ends, int other, int stage, int writer, int microbatch) const {
  const double end = ends.at(static_cast<std::size_t>(other)).at(static_cast<std::size_t>(microbatch));
  const bool same_pp_coordinate =
      pp_coordinates_.at(static_cast<std::size_t>(other)) == pp_coordinates_.at(static_cast<std::size_t>(stage));
  return end == kNotYet || same_pp_coordinate ? end : end + costs_.at(static_cast<std::size_t>(writer)).send;
}

std::optional<double> StageClock::ready(const StageAction& action) const {
  const auto [stage, kind, microbatch] = action;
  double latest = 0;
  bool known = true;
  const auto wait = [&](double arrival) {
    latest = std::max(latest, arrival);
    known = known && arrival != kNotYet;
  };
  if (kind == StageKind::F) {
    for (const int other : edges_.before.at(static_cast<std::size_t>(stage))) {
      wait(arrival(forward_, other, stage, other, microbatch));
    }
  } else if (kind == StageKind::W) {
    wait(arrival(backward_, stage, stage, stage, microbatch));
  } else {
    wait(arrival(forward_, stage, stage, stage, microbatch));
    for (const int other : edges_.after.at(static_cast<std::size_t>(stage))) {
      wait(arrival(backward_, other, stage, stage, microbatch));
    }
  }
  return known ? std::optional<double>(latest) : std::nullopt;
}

void StageClock::finish(const StageAction& action, double end) {
  if (action.kind == StageKind::W) return;
  Ends& ends = action.kind == StageKind::F ? forward_ : backward_;
  ends.at(static_cast<std::size_t>(action.stage)).at(static_cast<std::size_t>(action.microbatch)) = end;
}

}  // namespace orthant
