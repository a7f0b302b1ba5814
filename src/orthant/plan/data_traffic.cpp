#include "orthant/plan/data_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/plan/data_calls.h"

namespace orthant {
namespace {

// Bytes of an element of what travels.
std::int64_t gradient_bytes(const DataSettings& settings) {
  return bytes_of(settings.bf16_hook ? DType::bfloat16 : settings.reduce);
}

bool has_replicas(const DataSettings& settings) {
  return !copy_axes(settings.policy, settings.mesh).empty();
}

void add(DataTraffic::Entry& entry, std::int64_t bytes) {
  ++entry.calls;
  entry.bytes += bytes;
}

// After an update, with zero 1 and 2: one call per group with something trainable.
DataTraffic::Entry update_gathers(const UnitBuffers& buffers, std::int64_t element_bytes) {
  std::vector<int> groups;
  DataTraffic::Entry entry;
  for (std::size_t u = 0; u < buffers.held.size(); ++u) {
    if (buffers.held[u].empty()) continue;
    groups.push_back(buffers.unit_groups[u]);
    entry.bytes += buffers.elements(buffers.held[u]) * element_bytes;
  }
  std::ranges::sort(groups);
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  entry.calls = static_cast<std::int64_t>(groups.size());
  return entry;
}

// A group that has parameters.
struct GroupSize {
  int group = 0;
  std::int64_t elements = 0;
  bool reads_in_backward = false;
};

std::vector<GroupSize> plain_groups(const GraphSpec& graph, const UnitBuffers& buffers) {
  for (const FlatBuffer& buffer : buffers.all) {
    if (!buffer.trainable || buffer.tied()) {
      throw InternalError(fmt::format("the formula for plain traffic does not cover buffer {}", buffer.name));
    }
  }
  std::vector<GroupSize> groups;
  for (std::size_t u = 0; u < buffers.used.size(); ++u) {
    if (buffers.used[u].empty()) continue;
    const int group = buffers.unit_groups[u];
    if (groups.empty() || groups.back().group != group) {
      if (std::ranges::find(groups, group, &GroupSize::group) != groups.end()) {
        throw InternalError(fmt::format("the formula for plain traffic needs groups of neighbours; unit {} is in {}",
                                        graph.units[u].name, group));
      }
      groups.push_back({.group = group});
    }
    groups.back().elements += buffers.elements(buffers.used[u]);
    groups.back().reads_in_backward |= graph.units[u].backward_reads_parameters;
  }
  return groups;
}

// In elements.
DataTraffic::Entry sharded_gathers(const std::vector<GroupSize>& groups, const DataSettings& settings) {
  const auto limit = static_cast<std::size_t>(settings.policy.limit_all_gathers);
  const bool all_stay = settings.policy.keep_gathered || groups.size() <= limit;
  DataTraffic::Entry entry;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::int64_t times = all_stay ? 1 : settings.microbatches;
    if (!all_stay && groups[i].reads_in_backward) {
      if (i + limit < groups.size()) times += settings.microbatches;
      if (i < limit) times -= settings.microbatches - 1;
    }
    entry.calls += times;
    entry.bytes += times * groups[i].elements;
  }
  return entry;
}

// Calls with zero 0 and 1, where the last units finish first.
std::int64_t num_buckets(const UnitBuffers& buffers, const DataSettings& settings) {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  bool open = false;
  for (auto held = buffers.held.rbegin(); held != buffers.held.rend(); ++held) {
    if (held->empty()) continue;
    bytes += buffers.elements(*held) * bytes_of(settings.reduce);
    open = bytes < settings.policy.bucket_bytes;
    if (open) continue;
    ++calls;
    bytes = 0;
  }
  return calls + (open ? 1 : 0);
}

}  // namespace

DataTraffic data_traffic(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  const DataPolicy& policy = settings.policy;
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  const std::int64_t shards = policy.shards_state() ? settings.mesh.degree(Axis::fsdp) : 1;
  DataTraffic traffic;
  for (const DataCall& call : gradient_calls(buffers, settings, actions)) {
    const std::int64_t bytes = buffers.elements(call.buffers) * gradient_bytes(settings);
    const bool of_step = call.microbatch < 0;
    const bool scattered_before = policy.accumulate_sharded && of_step;
    if (policy.shards_state() && !scattered_before) add(traffic.scatter, bytes);
    if (has_replicas(settings) && of_step) add(traffic.sum, bytes / shards);
  }
  const std::int64_t element_bytes = bytes_of(settings.compute);
  if (policy.shards_parameters()) {
    for (const DataCall& call : gather_calls(buffers, actions)) {
      add(traffic.gather, buffers.elements(call.buffers) * element_bytes);
    }
  } else if (policy.shards_state()) {
    traffic.gather = update_gathers(buffers, element_bytes);
  }
  return traffic;
}

DataTraffic one_stage_traffic(const GraphSpec& graph, const DataSettings& settings) {
  const DataPolicy& policy = settings.policy;
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  const auto groups = plain_groups(graph, buffers);
  std::int64_t elements = 0;
  for (const GroupSize& group : groups) elements += group.elements;
  const auto num_groups = static_cast<std::int64_t>(groups.size());
  const std::int64_t calls = policy.shards_gradients() ? num_groups : num_buckets(buffers, settings);
  const std::int64_t bytes = elements * gradient_bytes(settings);
  const std::int64_t shards = policy.shards_state() ? settings.mesh.degree(Axis::fsdp) : 1;
  DataTraffic traffic;
  if (has_replicas(settings)) traffic.sum = {.calls = calls, .bytes = bytes / shards};
  if (!policy.shards_state()) return traffic;
  const std::int64_t times = policy.accumulate_sharded ? settings.microbatches : 1;
  traffic.scatter = {.calls = times * calls, .bytes = times * bytes};
  traffic.gather = {.calls = num_groups, .bytes = elements};
  if (policy.shards_parameters()) traffic.gather = sharded_gathers(groups, settings);
  traffic.gather.bytes *= bytes_of(settings.compute);
  return traffic;
}

}  // namespace orthant
