// The traffic of one stage without a list of actions: the formulas of Note [Data traffic] in
// plan/estimate/data_traffic.h, which data_traffic() is held to.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/plan/estimate/data_traffic.h"

namespace orthant::test {

// A group that has parameters.
struct GroupSize {
  int group = 0;
  std::int64_t elements = 0;
  bool reads_in_backward = false;
};

inline std::vector<GroupSize> plain_groups(const GraphSpec& graph, const UnitBuffers& buffers) {
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
inline DataTraffic::Entry sharded_gathers(const std::vector<GroupSize>& groups, const DataSettings& settings) {
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
inline std::int64_t num_buckets(const UnitBuffers& buffers, const DataSettings& settings) {
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

// InternalError when a buffer is frozen or tied, or a group is not made of neighbours.
inline DataTraffic one_stage_traffic(const GraphSpec& graph, const DataSettings& settings) {
  const DataPolicy& policy = settings.policy;
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  const auto groups = plain_groups(graph, buffers);
  std::int64_t elements = 0;
  for (const GroupSize& group : groups) elements += group.elements;
  const auto num_groups = static_cast<std::int64_t>(groups.size());
  const std::int64_t calls = policy.shards_gradients() ? num_groups : num_buckets(buffers, settings);
  const std::int64_t bytes = elements * bytes_of(settings.bf16_hook ? DType::bfloat16 : settings.reduce);
  const std::int64_t shards = policy.shards_state() ? settings.mesh.degree(Axis::fsdp) : 1;
  DataTraffic traffic;
  if (!copy_axes(policy, settings.mesh).empty()) traffic.sum = {.calls = calls, .bytes = bytes / shards};
  if (!policy.shards_state()) return traffic;
  const std::int64_t times = policy.accumulate_sharded ? settings.microbatches : 1;
  traffic.scatter = {.calls = times * calls, .bytes = times * bytes};
  traffic.gather = {.calls = num_groups, .bytes = elements};
  if (policy.shards_parameters()) traffic.gather = sharded_gathers(groups, settings);
  traffic.gather.bytes *= bytes_of(settings.compute);
  return traffic;
}

}  // namespace orthant::test
