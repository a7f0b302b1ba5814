#include "orthant/plan/estimate/pipeline_traffic.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/layout/placements.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

// A value that other pp coordinates than its writer's read.
struct Crossing {
  const ValueSpec* value = nullptr;
  int from = 0;
  std::map<int, int> readers;  // units by pp coordinate, without `from`
};

std::vector<Crossing> crossings_of(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates) {
  const GraphEdges edges(graph);
  std::vector<Crossing> crossings;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    Crossing crossing{.value = &graph.values[v],
                      .from = unit_pp_coordinates[static_cast<std::size_t>(edges.producer[v])],
                      .readers = {}};
    for (const int consumer : edges.consumers[v]) {
      const int pp = unit_pp_coordinates[static_cast<std::size_t>(consumer)];
      if (pp != crossing.from) ++crossing.readers[pp];
    }
    if (crossing.readers.empty()) continue;
    if (crossing.value->opaque) {
      throw InternalError(fmt::format("graph \"{}\": value {} crosses stages, and only a run knows its size",
                                      graph.name, crossing.value->name));
    }
    crossings.push_back(std::move(crossing));
  }
  return crossings;
}

// Per value that tp cuts, what this rank holds of it.
std::map<std::string_view, std::int64_t> cut_elements(const GraphSpec& graph, const DataSettings& settings) {
  std::map<std::string_view, std::int64_t> elements;
  for (const auto& cut : cut_values(graph, settings.mesh, settings.mesh.rank_of(settings.coordinate))) {
    elements[graph.value(cut.value).name] = num_elements(cut.local_shape);
  }
  return elements;
}

void add_messages(PipelineTraffic& traffic, const GraphSpec& graph, const DataSettings& settings) {
  const int pp = settings.coordinate[Axis::pp];
  const std::int64_t times = settings.microbatches;
  const auto cut = cut_elements(graph, settings);
  for (const auto& [value, from, readers] : crossings_of(graph, settings.unit_pp_coordinates)) {
    const auto found = cut.find(value->name);
    const auto elements = found == cut.end() ? num_elements(value->shape) : found->second;
    const auto bytes = elements * bytes_of(value->dtype);
    for (const auto& [reader, units] : readers) {
      const std::int64_t gradients = value->differentiable ? times * units : 0;
      if (from == pp) {
        traffic.sent_values.add(bytes, times);
        traffic.received_gradients.add(bytes, gradients);
      } else if (reader == pp) {
        traffic.received_values.add(bytes, times);
        traffic.sent_gradients.add(bytes, gradients);
      }
    }
  }
}

PipelineTraffic::Entry tied_sums(const GraphSpec& graph, const DataSettings& settings) {
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  const std::int64_t shards = settings.policy.shards_state() ? settings.mesh.degree(Axis::fsdp) : 1;
  std::set<std::vector<int>> sets;
  PipelineTraffic::Entry entry;
  for (std::size_t b = 0; b < buffers.all.size(); ++b) {
    if (!buffers.all[b].trainable || buffers.pp_users[b].size() == 1) continue;
    sets.insert(buffers.pp_users[b]);
    entry.bytes += buffers.all[b].size / shards * bytes_of(settings.reduce);
  }
  entry.calls = static_cast<std::int64_t>(sets.size());
  return entry;
}

}  // namespace

PipelineTraffic pipeline_traffic(const GraphSpec& graph, const DataSettings& settings) {
  PipelineTraffic traffic;
  if (settings.unit_pp_coordinates.empty()) return traffic;
  add_messages(traffic, graph, settings);
  traffic.tied = tied_sums(graph, settings);
  return traffic;
}

}  // namespace orthant
