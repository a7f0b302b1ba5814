// How many microbatches the stages of a pp coordinate hold at the worst moments of a schedule: walked once in the table
// that would run, kept for every configuration with the same one.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "orthant/plan/search/model.h"
#include "orthant/plan/search/space.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// Of one stage at one moment.
struct HeldMicrobatches {
  int whole = 0;     // forward done, backward not begun
  int deferred = 0;  // input gradients made, weight gradients not
  friend bool operator==(const HeldMicrobatches&, const HeldMicrobatches&) = default;
};

// Of one pp coordinate.
struct HeldMoment {
  std::vector<HeldMicrobatches> stages;  // of the pp coordinate, ascending
  int next = 0;                          // the stage that runs then, by its place among them
  StageKind kind = StageKind::BW;        // what it runs: a forward at its end, or a backward at its begin
  friend bool operator==(const HeldMoment&, const HeldMoment&) = default;
};

// A few at which the pp coordinate holds most, for each kind of action: by all stages, by its first or its last, by
// either kind of waiting. All of them are moments of the table, so that a pp coordinate never holds less.
using HeldMoments = std::vector<HeldMoment>;

// Per pp coordinate of a table; `pp_coordinates` has one entry per stage.
std::vector<HeldMoments> held_moments(const StageTable& table, const std::vector<int>& pp_coordinates);

class TableCache {
 public:
  explicit TableCache(const SearchModel& model) : model_(model) {}

  // Of the stages that begin at these units. Beyond a number of microbatches pp coordinates hold no more of them,
  // except with gpipe.
  const std::vector<HeldMoments>& moments(const ScheduleChoice& schedule, int pp, std::int64_t microbatches,
                                          const std::vector<int>& begins);

 private:
  std::vector<HeldMoments> walked(const ScheduleChoice& schedule, int pp, int microbatches,
                                  const std::vector<int>& begins) const;

  const SearchModel& model_;
  // Where the model is a chain, whatever the stages.
  std::map<std::tuple<std::string_view, int, int, std::int64_t, std::vector<int>>, std::vector<HeldMoments>> moments_;
};

}  // namespace orthant
