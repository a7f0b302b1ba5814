// The learning rate of every step, as a closed form: nothing is carried from step to step, so a resumed run and every
// rank compute the same value. See Note [Learning rate] in lr_schedule.cpp for the curves.
#pragma once

#include <cstdint>
#include <string_view>

namespace orthant {

struct LrSchedule {
  enum class Kind { linear, cosine, wsd, constant };

  Kind kind = Kind::constant;
  double peak = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  double final_fraction = 0;      // of peak, reached at total_steps; `constant` has no use for it
  std::int64_t decay_steps = -1;  // wsd: length of the last decline; negative: a fifth of total_steps

  // Of the step about to be made; steps count from 1. Past total_steps the last value holds.
  double at(std::int64_t step) const;

  // ConfigError that names the key for values no curve can have. Call check() once, before at(); check_values() asks
  // for no number of steps.
  void check() const;
  void check_values() const;
};

std::string_view lr_schedule_name(LrSchedule::Kind kind);

// The kind of that name; a ConfigError that names the nearest one otherwise.
LrSchedule::Kind parse_lr_schedule(std::string_view text);

}  // namespace orthant
