#include "orthant/plan/estimate/data_traffic.h"

#include <algorithm>

#include "orthant/schedule/data_calls.h"

namespace orthant {
namespace {

// Bytes of an element of what travels.
std::int64_t gradient_bytes(const DataSettings& settings) {
  return bytes_of(settings.bf16_hook ? DType::bfloat16 : settings.reduce);
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

}  // namespace

DataTraffic data_traffic(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  return data_traffic(data_views(graph, settings).front(), actions);
}

DataTraffic data_traffic(const DataView& view, const std::vector<Action>& actions) {
  const DataSettings& settings = view.settings;
  const DataPolicy& policy = settings.policy;
  const UnitBuffers& buffers = view.buffers;
  const bool has_replicas = !copy_axes(policy, view.mesh).empty();
  DataTraffic traffic;
  for (const DataCall& call : gradient_calls(buffers, settings, actions)) {
    const std::int64_t bytes = buffers.elements(call.buffers) * gradient_bytes(settings);
    const bool of_step = call.microbatch < 0;
    const bool scattered_before = policy.accumulate_sharded && of_step;
    if (policy.shards_state() && !scattered_before) traffic.scatter.add(bytes);
    if (has_replicas && of_step) traffic.sum.add(bytes / view.num_shards());
  }
  const std::int64_t element_bytes = bytes_of(settings.compute);
  if (policy.shards_parameters()) {
    for (const DataCall& call : gather_calls(buffers, actions)) {
      traffic.gather.add(buffers.elements(call.buffers) * element_bytes);
    }
  } else if (policy.shards_state()) {
    traffic.gather = update_gathers(buffers, element_bytes);
  }
  return traffic;
}

}  // namespace orthant
