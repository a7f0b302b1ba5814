// Note [Learning rate]
// Step s of the warm-up has s / warmup_steps of the peak, so the first step already learns and step warmup_steps has
// all of it. The decline begins after the last step of full rate (the end of the warm-up, or step 1 without one; for
// wsd decay_steps before the end) and reaches final_fraction x peak exactly at total_steps:
//   linear, wsd:  1 - (1 - f) p          cosine:  f + (1 - f) (1 + cos(pi p)) / 2          p from 0 to 1.
#include "orthant/train/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

const std::array<std::string, 4> kScheduleNames = {"linear", "cosine", "wsd", "constant"};

[[noreturn]] void refuse(std::string_view key, std::string_view found, std::string_view rule, std::string remedy) {
  throw ConfigError(fmt::format("{} is {}: {}", key, found, rule), {.remedy = std::move(remedy)});
}

// The last step at full rate.
std::int64_t decline_start(const LrSchedule& schedule) {
  const std::int64_t warm = std::max<std::int64_t>(schedule.warmup_steps, 1);
  if (schedule.kind != LrSchedule::Kind::wsd) return warm;
  const std::int64_t decay = schedule.decay_steps < 0 ? (schedule.total_steps + 2) / 5 : schedule.decay_steps;
  return std::max(warm, schedule.total_steps - decay);
}

}  // namespace

double LrSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  const std::int64_t start = decline_start(*this);
  if (kind == Kind::constant || step <= start) return peak;
  if (step >= total_steps) return total_steps > start ? peak * final_fraction : peak;
  const double progress = static_cast<double>(step - start) / static_cast<double>(total_steps - start);
  const double left = kind == Kind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return peak * (final_fraction + (1 - final_fraction) * left);
}

void LrSchedule::check_values() const {
  if (!std::isfinite(peak) || peak < 0) {
    refuse("optimizer.lr", fmt::format("{}", peak), "a learning rate is a finite number of at least 0",
           "set optimizer.lr, for example to 3e-4");
  }
  if (warmup_steps < 0) {
    refuse("lr_schedule.warmup_steps", fmt::format("{}", warmup_steps), "a number of steps is at least 0",
           "set lr_schedule.warmup_steps to 0 for no warm-up");
  }
  if (!(final_fraction >= 0 && final_fraction <= 1)) {
    refuse("lr_schedule.final_fraction", fmt::format("{}", final_fraction), "a fraction of the peak lies in [0, 1]",
           "set lr_schedule.final_fraction, for example to 0.1");
  }
}

void LrSchedule::check() const {
  check_values();
  if (total_steps < 1) {
    refuse("train.steps", fmt::format("{}", total_steps), "a learning-rate schedule has at least one step",
           "set train.steps or train.epochs to 1 or more");
  }
  const std::int64_t room = std::max<std::int64_t>(total_steps - warmup_steps, 0);
  if (kind == Kind::wsd && decay_steps > room) {
    refuse("lr_schedule.decay_steps", fmt::format("{}", decay_steps),
           fmt::format("after a warm-up of {} only {} of {} steps are left", warmup_steps, room, total_steps),
           fmt::format("set lr_schedule.decay_steps to at most {}", room));
  }
}

std::string_view lr_schedule_name(LrSchedule::Kind kind) {
  return kScheduleNames.at(static_cast<std::size_t>(kind));
}

LrSchedule::Kind parse_lr_schedule(std::string_view text) {
  const auto found = std::find(kScheduleNames.begin(), kScheduleNames.end(), text);
  if (found == kScheduleNames.end()) {
    throw ConfigError(fmt::format("lr_schedule.kind: unknown schedule \"{}\"", text),
                      {.remedy = did_you_mean(text, kScheduleNames)});
  }
  return static_cast<LrSchedule::Kind>(found - kScheduleNames.begin());
}

}  // namespace orthant
