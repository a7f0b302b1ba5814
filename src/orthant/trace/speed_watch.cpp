#include "orthant/trace/speed_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orthant/base/human.h"
#include "orthant/base/quantile.h"

namespace orthant::trace {
namespace {

constexpr int kGrowingWindows = 3;

}  // namespace

std::vector<std::string> SpeedWatch::step(const WatchedStep& step) {
  std::vector<std::string> said;
  ++seen_;
  watch_ranks(step, said);
  watch_steps(step, said);
  watch_memory(step, said);
  return said;
}

// In a group of two the median of the others is the other.
void SpeedWatch::watch_ranks(const WatchedStep& step, std::vector<std::string>& said) {
  const auto& busy = step.busy_seconds;
  if (busy.size() != group_of_rank_.size()) return;
  slow_for_.resize(busy.size());
  excess_.resize(busy.size());
  for (std::size_t r = 0; r < busy.size(); ++r) {
    std::vector<double> others;
    for (std::size_t o = 0; o < busy.size(); ++o) {
      if (o != r && group_of_rank_[o] == group_of_rank_[r] && busy[o] > 0) others.push_back(busy[o]);
    }
    const double usual = others.empty() ? 0 : quantile(others, 0.5);
    if (usual <= 0 || busy[r] < kSlowerRank * usual) {
      slow_for_[r] = 0;
      excess_[r] = 0;
      continue;
    }
    ++slow_for_[r];
    excess_[r] += busy[r] / usual - 1;
    if (slow_for_[r] < kWindow || !slow_said_.insert(static_cast<int>(r)).second) continue;
    said.push_back(fmt::format(
        "rank {} ({}) has been slower than the ranks that do the same work for {} steps, by {:.0f}% on average: "
        "{} a step and not {}; they wait for it",
        r, place_(static_cast<int>(r)), kWindow, 100 * excess_[r] / slow_for_[r], format_seconds(busy[r]),
        format_seconds(usual)));
  }
}

void SpeedWatch::watch_steps(const WatchedStep& step, std::vector<std::string>& said) {
  window_.push_back(step.seconds);
  if (window_.size() > kWindow) window_.pop_front();
  if (window_.size() < kWindow || seen_ % kWindow != 0) return;
  const double median = quantile({window_.begin(), window_.end()}, 0.5);
  if (best_median_ == 0 || median < best_median_) {
    best_median_ = median;
    best_at_ = step.step;
    return;
  }
  if (slower_said_ || median < kSlowerStep * best_median_) return;
  slower_said_ = true;
  said.push_back(fmt::format("steps take {} now and took {} up to step {}: {:.0f}% more", format_seconds(median),
                             format_seconds(best_median_), best_at_, 100 * (median / best_median_ - 1)));
}

void SpeedWatch::watch_memory(const WatchedStep& step, std::vector<std::string>& said) {
  if (seen_ % kWindow != 0 || memory_said_) return;
  if (first_bytes_ == 0) first_bytes_ = step.peak_memory_bytes;
  windows_growing_ = step.peak_memory_bytes > last_bytes_ && last_bytes_ > 0 ? windows_growing_ + 1 : 0;
  last_bytes_ = step.peak_memory_bytes;
  if (windows_growing_ < kGrowingWindows ||
      static_cast<double>(last_bytes_) < kMoreMemory * static_cast<double>(first_bytes_)) {
    return;
  }
  memory_said_ = true;
  said.push_back(fmt::format("memory grows: the largest rank's peak was {} and is {} after step {}",
                             format_bytes(first_bytes_), format_bytes(last_bytes_), step.step));
}

}  // namespace orthant::trace
