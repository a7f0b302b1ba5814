// What a CUDA device ran while somebody watched: kernels and copies by name, and what the host asked that makes it
// wait. Uses libtorch's profiler. One at a time in a process. Local.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace orthant::cli {

struct KernelTime {
  std::string name;
  std::int64_t count = 0;
  double seconds = 0;
};

struct DeviceActivity {
  std::vector<KernelTime> kernels;  // the longest first
  double busy_seconds = 0;          // union of their intervals
  double span_seconds = 0;          // from the first one's begin to the last one's end
  // Of exchanges with other ranks: union of their intervals, the part during which another kernel ran, and whether all
  // of them had streams on which nothing else ran.
  double exchange_seconds = 0;
  double hidden_seconds = 0;
  bool exchanges_apart = true;
  // Calls of the host inside of steps by name: synchronisations, allocations. Copies of pageable memory anywhere.
  std::vector<KernelTime> waits;
};

// Until stop_watching_device().
void watch_device();
// Runs a step. What the host calls between steps, as to read the numbers of the one before, does not count.
void watched_step(const std::function<void()>& step);
DeviceActivity stop_watching_device();

// What a kernel is for, by its name: products, attention, exchange, or what memory bounds.
std::string kernel_class(const std::string& name);

// Share of the time from the first kernel's begin to the last one's end, by class. Kernels may run side by side, then
// their shares are of the time in which any did.
std::map<std::string, double> class_shares(const DeviceActivity& activity);

// Shares of the classes and of gaps, then a table of the first `most` kernels, with counts and shares of a step;
// `steps` were watched.
std::string activity_text(const DeviceActivity& activity, int steps, std::size_t most);
nlohmann::ordered_json activity_json(const DeviceActivity& activity, int steps, std::size_t most);

}  // namespace orthant::cli
