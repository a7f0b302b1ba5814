#include "orthant/train/out_of_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "orthant/base/human.h"
#include "orthant/train/memory.h"
#include "orthant/train/memory_use.h"
#include "orthant/train/rank_log.h"
#include "orthant/train/run_estimate.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

constexpr const char* kActivations = "activations and temporary values";
constexpr std::size_t kMostHolders = 3;

// Of tensors; nothing where even that finds no memory.
std::int64_t predicted_bytes(const RunConfig& config, int rank) {
  try {
    const auto plan = estimate_run(config, find_hardware("cpu"));  // memory is the same on any hardware
    const auto& memory = plan.memory.at(static_cast<std::size_t>(config.mesh.coordinate(rank)[Axis::pp]));
    return memory.total() - memory.reserve;
  } catch (const std::exception&) {
    return 0;
  }
}

// "; its process may have 200 MiB (ulimit -d)", by the smaller of such limits.
std::string limit_text() {
  rlim_t least = RLIM_INFINITY;
  const char* flag = "";
  for (const auto& [kind, name] : {std::pair(RLIMIT_DATA, "-d"), std::pair(RLIMIT_AS, "-v")}) {
    rlimit limit = {};
    if (getrlimit(kind, &limit) != 0 || limit.rlim_cur >= least) continue;
    least = limit.rlim_cur;
    flag = name;
  }
  if (least == RLIM_INFINITY) return "";
  return fmt::format("; its process may have {} (ulimit {})", format_bytes(static_cast<std::int64_t>(least)), flag);
}

std::string holders_text(const std::vector<MemoryHolder>& holders) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(holders.size(), kMostHolders); ++i) {
    texts.push_back(fmt::format("{} of {}", format_bytes(holders[i].bytes), holders[i].what));
  }
  return texts.empty() ? "" : fmt::format("; most is {}", fmt::join(texts, ", "));
}

std::string remedies(const RunConfig& config, const MemoryInUse& in_use) {
  const auto fewer_rows = fmt::format("--set parallel.microbatches={} or more, --set parallel.recompute=full",
                                      2 * std::max(config.trainer.microbatches, 1));
  const std::string shards =
      "shards instead of replicas (--mesh fsdp=N), more tp or pp ranks, --set precision.compute=bfloat16";
  const bool state = !in_use.holders.empty() && in_use.holders.front().what != kActivations;
  return fmt::format(
      "use less memory per rank, first what helps most here: {}, {}; or give it more (ulimit, the limit "
      "of its container, fewer ranks per host or card); orthant train --dry-run prices such ways",
      state ? shards : fewer_rows, state ? fewer_rows : shards);
}

}  // namespace

MemoryInUse memory_in_use(const Trainer* trainer, at::Device device) {
  MemoryInUse in_use;
  in_use.bytes = live_memory_bytes(device);
  if (trainer != nullptr) in_use.bytes = std::max(in_use.bytes, trainer->bytes_at_failure());
  const auto refusal = install_counting_allocator().last_refusal();
  if (device.is_cpu() && refusal.bytes > 0) {
    in_use.bytes = std::max(in_use.bytes, refusal.live_bytes);
    in_use.asked_bytes = refusal.bytes;
  }
  if (trainer == nullptr) return in_use;
  in_use.bytes += trainer->exchanged_bytes();
  const auto& store = trainer->parameters();
  const bool offloads = trainer->options().policy.offload != Offload::none;
  const auto state = offloads && !device.is_cpu() ? 0 : trainer->optimizer().state_bytes();
  auto& holders = in_use.holders;
  holders = {{"parameters", store.value_bytes()}, {"gradients", store.gradient_bytes()}, {"optimizer state", state}};
  auto rest = in_use.bytes;
  for (const auto& holder : holders) rest -= holder.bytes;
  holders.push_back({kActivations, std::max<std::int64_t>(rest, 0)});
  std::ranges::stable_sort(holders, std::greater(), &MemoryHolder::bytes);
  std::erase_if(holders, [](const MemoryHolder& holder) { return holder.bytes == 0; });
  return in_use;
}

DataError out_of_memory(const RunConfig& config, int rank, const std::string& action, const MemoryInUse& in_use) {
  auto text = fmt::format("out of memory at {}{}: {} in use", place_text(config.mesh, rank),
                          action.empty() ? "" : " in " + action, format_bytes(in_use.bytes));
  if (in_use.asked_bytes > 0) text += fmt::format(" and {} more asked for", format_bytes(in_use.asked_bytes));
  if (const auto predicted = predicted_bytes(config, rank); predicted > 0) {
    text += fmt::format(", {} predicted", format_bytes(predicted));
  }
  return DataError(text + holders_text(in_use.holders) + limit_text(),
                   {.remedy = remedies(config, in_use), .rank = rank});
}

}  // namespace orthant
