#include "orthant/plan/search/tables.h"

#include <algorithm>
#include <array>

#include "orthant/schedule/named_schedules.h"

namespace orthant {
namespace {

// So many microbatches per pp coordinate, and pp coordinates hold as many as they ever will.
constexpr std::int64_t kEnough = 4;

// What a moment may be the worst by: microbatches of all stages alike, or the first or last stage of the pp coordinate
// counted more, since the embedding and the head are there; waiting for either gradient, or for one of them.
struct Weights {
  double whole = 1;
  double deferred = 1;
  double first = 0;
  double last = 0;
};
constexpr std::array<Weights, 9> kWeights = {{{1, 1, 0, 0},
                                              {1, 1, 1, 0},
                                              {1, 1, 0, 1},
                                              {1, 0, 0, 0},
                                              {1, 0, 1, 0},
                                              {1, 0, 0, 1},
                                              {0, 1, 0, 0},
                                              {0, 1, 1, 0},
                                              {0, 1, 0, 1}}};

// Walks the actions of one pp coordinate.
class PpWalk {
 public:
  explicit PpWalk(int num_stages)
      : now_{.stages = std::vector<HeldMicrobatches>(static_cast<std::size_t>(num_stages))} {}

  void add(StageKind kind, int place) {
    const bool backward = kind == StageKind::BW || kind == StageKind::B;
    if (kind != StageKind::F && now_.kind == StageKind::F) look();
    now_.next = place;
    now_.kind = kind;
    if (kind != StageKind::F && grew_) look();
    grew_ = kind == StageKind::F || kind == StageKind::B;
    HeldMicrobatches& counts = now_.stages[static_cast<std::size_t>(place)];
    if (kind == StageKind::F) change(counts.whole, all_.whole, 1);
    if (backward) change(counts.whole, all_.whole, -1);
    if (kind == StageKind::B) change(counts.deferred, all_.deferred, 1);
    if (kind == StageKind::W) change(counts.deferred, all_.deferred, -1);
  }

  HeldMoments moments() const {
    HeldMoments different;
    for (const auto& worst : worst_) {
      for (const HeldMoment& moment : worst) {
        if (moment.stages.empty() || std::ranges::find(different, moment) != different.end()) continue;
        different.push_back(moment);
      }
    }
    return different;
  }

 private:
  static void change(int& count, int& sum, int by) {
    count += by;
    sum += by;
  }

  void look() {
    const auto kind = static_cast<std::size_t>(now_.kind);
    for (std::size_t i = 0; i < kWeights.size(); ++i) {
      const Weights& weights = kWeights[i];
      if (now_.stages.size() == 1 && weights.first + weights.last > 0) continue;  // as without
      const auto weigh = [&](const HeldMicrobatches& counts) {
        return weights.whole * counts.whole + weights.deferred * counts.deferred;
      };
      const double score =
          weigh(all_) + weights.first * weigh(now_.stages.front()) + weights.last * weigh(now_.stages.back());
      HeldMoment& worst = worst_[kind][i];
      if (!worst.stages.empty() && score <= scores_[kind][i]) continue;
      scores_[kind][i] = score;
      worst = now_;
    }
  }

  HeldMoment now_;
  HeldMicrobatches all_;
  bool grew_ = false;
  // By kind of action.
  std::array<std::array<double, kWeights.size()>, 4> scores_ = {};
  std::array<std::array<HeldMoment, kWeights.size()>, 4> worst_;
};

}  // namespace

std::vector<HeldMoments> held_moments(const StageTable& table, const std::vector<int>& pp_coordinates) {
  std::vector<int> place;  // per stage: among those of its pp coordinate
  std::vector<int> counts(table.actions.size(), 0);
  for (const int coordinate : pp_coordinates) place.push_back(counts[static_cast<std::size_t>(coordinate)]++);
  std::vector<HeldMoments> moments;
  for (std::size_t r = 0; r < table.actions.size(); ++r) {
    PpWalk walk(counts[r]);
    for (const StageAction& action : table.actions[r]) {
      walk.add(action.kind, place[static_cast<std::size_t>(action.stage)]);
    }
    moments.push_back(walk.moments());
  }
  return moments;
}

std::vector<HeldMoments> TableCache::walked(const ScheduleChoice& schedule, int pp, int microbatches,
                                            const std::vector<int>& begins) const {
  if (model_.is_chain() || pp == 1) {
    const Schedule made = make_schedule(schedule.name, pp, schedule.virtual_stages, microbatches);
    return held_moments(made.table, made.pp_coordinates);
  }
  const StageMap map = stage_map(begins, schedule_placement(schedule.name, pp, schedule.virtual_stages));
  return held_moments(make_schedule(schedule.name, map, model_.graph(), microbatches), map.pp_coordinates);
}

const std::vector<HeldMoments>& TableCache::moments(const ScheduleChoice& schedule, int pp, std::int64_t microbatches,
                                                    const std::vector<int>& begins) {
  const bool grows = schedule.name == "gpipe";
  const std::int64_t few = std::min(microbatches, kEnough * pp);
  const auto [found, made] =
      moments_.try_emplace({schedule.name, schedule.virtual_stages, pp, grows ? microbatches : few,
                            model_.is_chain() ? std::vector<int>() : begins});
  if (!made) return found->second;
  found->second = walked(schedule, pp, static_cast<int>(few), begins);
  if (!grows) return found->second;
  // All forwards come first: each further microbatch is held at every moment.
  for (HeldMoments& moments : found->second) {
    for (HeldMoment& moment : moments) {
      for (HeldMicrobatches& held : moment.stages) held.whole += static_cast<int>(microbatches - few);
    }
  }
  return found->second;
}

}  // namespace orthant
