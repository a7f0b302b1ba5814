#include "orthant/launch/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant::launch {
namespace {

constexpr double kLongestIntervalSeconds = 5;
constexpr double kSignsPerTimeout = 4;

}  // namespace

Heartbeat::Heartbeat(double timeout_seconds, Clock::time_point now)
    : timeout_seconds_(timeout_seconds),
      interval_(seconds(std::min(timeout_seconds / kSignsPerTimeout, kLongestIntervalSeconds))),
      heard_at_(now),
      send_at_(now + interval_) {}

bool Heartbeat::is_due(Clock::time_point now) {
  if (now < send_at_) return false;
  send_at_ = now + interval_;
  return true;
}

std::optional<std::string> Heartbeat::silence(Clock::time_point now) const {
  const auto silent = now - heard_at_;
  if (silent < seconds(timeout_seconds_)) return std::nullopt;
  return fmt::format("its launcher was silent for {:.1f} s", std::chrono::duration<double>(silent).count());
}

Clock::time_point Heartbeat::next() const {
  return std::min(send_at_, heard_at_ + seconds(timeout_seconds_));
}

}  // namespace orthant::launch
