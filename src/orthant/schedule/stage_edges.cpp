#include "orthant/schedule/stage_edges.h"

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {

std::vector<int> StageEdges::depths() const {
  std::vector<int> depth(before.size(), 0);
  for (std::size_t stage = before.size(); stage-- > 0;) {
    for (const int earlier : before[stage]) {
      int& longest = depth[static_cast<std::size_t>(earlier)];
      longest = std::max(longest, depth[stage] + 1);
    }
  }
  return depth;
}

StageEdges chain_edges(int stages) {
  StageEdges edges;
  for (int stage = 0; stage < stages; ++stage) {
    edges.before.push_back(stage > 0 ? std::vector<int>{stage - 1} : std::vector<int>());
    edges.after.push_back(stage + 1 < stages ? std::vector<int>{stage + 1} : std::vector<int>());
  }
  return edges;
}

StageEdges stage_edges(const StageMap& map, const GraphSpec& graph) {
  std::vector<int> stage_of(graph.units.size(), 0);
  for (int stage = 0; stage < map.num_stages(); ++stage) {
    for (const int unit : map.units[static_cast<std::size_t>(stage)])
      stage_of.at(static_cast<std::size_t>(unit)) = stage;
  }
  const GraphEdges units(graph);
  std::vector<std::set<int>> before(map.units.size());
  std::vector<std::set<int>> after(map.units.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const int from = stage_of[static_cast<std::size_t>(units.producer[v])];
    for (const int consumer : units.consumers[v]) {
      const int to = stage_of[static_cast<std::size_t>(consumer)];
      if (from == to) continue;
      before[static_cast<std::size_t>(to)].insert(from);
      if (graph.values[v].differentiable) after[static_cast<std::size_t>(from)].insert(to);
    }
  }
  StageEdges edges;
  for (const auto& stages : before) edges.before.emplace_back(stages.begin(), stages.end());
  for (const auto& stages : after) edges.after.emplace_back(stages.begin(), stages.end());
  return edges;
}

bool StageProgress::ready(const StageAction& action) const {
  const auto [stage, kind, microbatch] = action;
  const auto index = static_cast<std::size_t>(stage);
  if (kind == StageKind::W) return backward_done(stage, microbatch);
  if (kind == StageKind::F) {
    return std::ranges::all_of(edges_.before.at(index), [&](int other) { return forward_done(other, microbatch); });
  }
  return forward_done(stage, microbatch) &&
         std::ranges::all_of(edges_.after.at(index), [&](int other) { return backward_done(other, microbatch); });
}

void StageProgress::finish(const StageAction& action) {
  if (action.kind == StageKind::F) forward_.insert({action.stage, action.microbatch});
  if (action.kind == StageKind::B || action.kind == StageKind::BW) backward_.insert({action.stage, action.microbatch});
}

StageAction StageProgress::awaited(const StageAction& action) const {
  const auto [stage, kind, microbatch] = action;
  const auto index = static_cast<std::size_t>(stage);
  if (kind == StageKind::W) return {stage, StageKind::B, microbatch};
  if (kind == StageKind::F) {
    for (const int other : edges_.before.at(index)) {
      if (!forward_done(other, microbatch)) return {other, StageKind::F, microbatch};
    }
  }
  if (kind != StageKind::F && !forward_done(stage, microbatch)) return {stage, StageKind::F, microbatch};
  for (const int other : edges_.after.at(index)) {
    if (!backward_done(other, microbatch)) return {other, kind, microbatch};
  }
  throw InternalError("an action that is ready waits for nothing");
}

}  // namespace orthant
