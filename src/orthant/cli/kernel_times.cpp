#include "orthant/cli/kernel_times.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/human.h"
#include "orthant/base/text_table.h"

namespace orthant::cli {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Calls that make the host wait for the device, or the device for the host.
bool waits(const std::string& name) {
  static const std::set<std::string> kCalls = {"cudaDeviceSynchronize",
                                               "cudaStreamSynchronize",
                                               "cudaEventSynchronize",
                                               "cudaMalloc",
                                               "cudaFree",
                                               "cudaHostAlloc",
                                               "cudaMemcpy",
                                               "cudaFreeHost"};
  return kCalls.contains(name) || name.find("Pageable") != std::string::npos;
}

constexpr const char* kStepName = "orthant::step";

using Interval = std::pair<std::uint64_t, std::uint64_t>;

Interval interval_of(const profiler::KinetoEvent& event) {
  return {event.startNs(), event.startNs() + event.durationNs()};
}

// Intervals that overlap are one, ascending.
std::vector<Interval> joined(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  std::vector<Interval> all;
  for (const auto& [begin, end] : intervals) {
    if (all.empty() || begin > all.back().second) {
      all.emplace_back(begin, end);
    } else {
      all.back().second = std::max(all.back().second, end);
    }
  }
  return all;
}

double seconds_of(const std::vector<Interval>& apart) {
  double seconds = 0;
  for (const auto& [begin, end] : apart) seconds += static_cast<double>(end - begin) * 1e-9;
  return seconds;
}

double seconds_of_both(const std::vector<Interval>& some, const std::vector<Interval>& others) {
  double seconds = 0;
  for (std::size_t i = 0, j = 0; i < some.size() && j < others.size();) {
    const auto begin = std::max(some[i].first, others[j].first);
    const auto end = std::min(some[i].second, others[j].second);
    if (begin < end) seconds += static_cast<double>(end - begin) * 1e-9;
    some[i].second < others[j].second ? ++i : ++j;
  }
  return seconds;
}

bool is_exchange(const std::string& kernel) {
  return kernel.starts_with("nccl");
}

std::vector<KernelTime> sorted(const std::map<std::string, KernelTime>& by_name) {
  std::vector<KernelTime> all;
  for (const auto& [name, time] : by_name) all.push_back(time);
  std::ranges::sort(all, [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

}  // namespace

void watch_device() {
  const std::set<ActivityType> activities = {ActivityType::CPU, ActivityType::CUDA};
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

void watched_step(const std::function<void()>& step) {
  RECORD_FUNCTION(kStepName, std::vector<c10::IValue>());
  step();
}

DeviceActivity stop_watching_device() {
  const auto result = profiler::disableProfiler();
  std::vector<Interval> steps;
  for (const auto& event : result->events()) {
    if (event.name() == kStepName) steps.push_back(interval_of(event));
  }
  const auto inside_of_step = [&](std::uint64_t moment) {
    return std::ranges::any_of(steps, [&](const Interval& s) { return s.first <= moment && moment < s.second; });
  };
  std::map<std::string, KernelTime> kernels, calls;
  std::vector<Interval> intervals, exchanges, others;
  std::set<std::int64_t> exchange_streams, other_streams;
  for (const auto& event : result->events()) {
    const bool on_device = event.deviceType() == c10::DeviceType::CUDA;
    if (!on_device && !(waits(event.name()) && inside_of_step(event.startNs()))) continue;
    auto& time = (on_device ? kernels : calls)[event.name()];
    time.name = event.name();
    ++time.count;
    time.seconds += static_cast<double>(event.durationNs()) * 1e-9;
    if (on_device) {
      const bool exchange = is_exchange(event.name());
      intervals.push_back(interval_of(event));
      (exchange ? exchanges : others).push_back(interval_of(event));
      (exchange ? exchange_streams : other_streams).insert(event.deviceResourceId());
    }
    if (on_device && waits(event.name())) calls[event.name()] = time;
  }
  DeviceActivity activity{.kernels = sorted(kernels), .busy_seconds = 0, .span_seconds = 0, .waits = sorted(calls)};
  intervals = joined(std::move(intervals));
  exchanges = joined(std::move(exchanges));
  if (intervals.empty()) return activity;
  activity.busy_seconds = seconds_of(intervals);
  activity.span_seconds = static_cast<double>(intervals.back().second - intervals.front().first) * 1e-9;
  activity.exchange_seconds = seconds_of(exchanges);
  activity.hidden_seconds = seconds_of_both(exchanges, joined(std::move(others)));
  activity.exchanges_apart =
      std::ranges::none_of(exchange_streams, [&](std::int64_t stream) { return other_streams.contains(stream); });
  return activity;
}

std::string kernel_class(const std::string& name) {
  const auto has = [&](std::initializer_list<const char*> parts) {
    return std::ranges::any_of(parts, [&](const char* part) { return name.find(part) != std::string::npos; });
  };
  if (has({"nccl"})) return "exchanges";
  if (has({"attention", "flash", "fmha", "sdpa"})) return "attention";
  if (has({"nvjet", "gemm", "cutlass", "splitK", "gemv"})) return "products";
  return "bound by memory";
}

std::map<std::string, double> class_shares(const DeviceActivity& activity) {
  std::map<std::string, double> shares;
  double together = 0;
  for (const auto& kernel : activity.kernels) {
    shares[kernel_class(kernel.name)] += kernel.seconds;
    together += kernel.seconds;
  }
  for (auto& [name, share] : shares) share *= activity.busy_seconds / together / activity.span_seconds;
  return shares;
}

nlohmann::ordered_json activity_json(const DeviceActivity& activity, int steps, std::size_t most) {
  auto kernels = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(most, activity.kernels.size()); ++i) {
    const auto& [name, count, seconds] = activity.kernels[i];
    kernels.push_back({{"name", name}, {"count", count}, {"seconds", seconds}});
  }
  auto waits = nlohmann::ordered_json::object();
  for (const auto& call : activity.waits) waits[call.name] = call.count;
  const bool ran = activity.span_seconds > 0;
  nlohmann::ordered_json document = {{"steps", steps},
                                     {"gaps", ran ? 1 - activity.busy_seconds / activity.span_seconds : 0},
                                     {"shares", ran ? class_shares(activity) : std::map<std::string, double>()},
                                     {"kernels", kernels},
                                     {"waits", waits}};
  if (activity.exchange_seconds > 0) {
    document["exchanges"] = {{"seconds", activity.exchange_seconds},
                             {"hidden", activity.hidden_seconds / activity.exchange_seconds},
                             {"on_own_streams", activity.exchanges_apart}};
  }
  return document;
}

std::string activity_text(const DeviceActivity& activity, int steps, std::size_t most) {
  std::string shares;
  for (const auto& [name, share] : class_shares(activity)) shares += fmt::format("{} {:.1f}%, ", name, 100 * share);
  shares += fmt::format("gaps {:.1f}%\n", 100 * (1 - activity.busy_seconds / activity.span_seconds));
  std::vector<TableLine> lines = {{"kernel", "a step", "time a step", "share"}};
  const auto add = [&](const std::string& name, std::int64_t count, double seconds) {
    lines.push_back({name.substr(0, 90), fmt::format("{:.1f}", static_cast<double>(count) / steps),
                     format_seconds(seconds / steps), fmt::format("{:.1f}%", 100 * seconds / activity.span_seconds)});
  };
  KernelTime rest{.name = "others"};
  for (std::size_t i = 0; i < activity.kernels.size(); ++i) {
    const auto& kernel = activity.kernels[i];
    if (i < most) {
      add(kernel.name, kernel.count, kernel.seconds);
    } else {
      rest.count += kernel.count;
      rest.seconds += kernel.seconds;
    }
  }
  if (rest.count > 0) add(rest.name, rest.count, rest.seconds);
  add("gaps", 0, activity.span_seconds - activity.busy_seconds);
  auto text = shares + text_table(lines);
  for (const auto& call : activity.waits)
    text += fmt::format("{} calls of {} in {} steps\n", call.count, call.name, steps);
  if (activity.exchange_seconds > 0) {
    text += fmt::format("exchanges: {} a step, {}, {:.1f}% of it under other kernels\n",
                        format_seconds(activity.exchange_seconds / steps),
                        activity.exchanges_apart ? "on streams of their own" : "on streams of other kernels",
                        100 * activity.hidden_seconds / activity.exchange_seconds);
  }
  if (activity.waits.empty()) text += fmt::format("the host waited for nothing in {} steps\n", steps);
  return text;
}

}  // namespace orthant::cli
