// Which stage waits for which. A chain when only stages are known; with a graph and its cut, the edges between the
// stages, so that branches do not wait for each other. Edges only lead to later stages: an order that respects the
// chain respects every graph.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

struct StageEdges {
  std::vector<std::vector<int>> before;  // per stage: those whose F its own F waits for, ascending
  std::vector<std::vector<int>> after;   // per stage: those whose B or BW its own waits for, ascending

  int num_stages() const { return static_cast<int>(before.size()); }

  // Per stage, the longest path that its values take, in edges: 0 for the last stage, p - 1 - s in a chain of p.
  std::vector<int> depths() const;
};

StageEdges chain_edges(int stages);

// The map must have passed check_stages(). Integer values and others without gradient lead forwards only.
StageEdges stage_edges(const StageMap& map, const GraphSpec& graph);

// How far the microbatches have come. A view: the edges outlive it.
class StageProgress {
 public:
  explicit StageProgress(const StageEdges& edges) : edges_(edges) {}

  bool ready(const StageAction& action) const;
  void finish(const StageAction& action);

  // What `action` waits for while it is not ready: the first that is missing.
  StageAction awaited(const StageAction& action) const;

 private:
  bool forward_done(int stage, int microbatch) const { return forward_.contains({stage, microbatch}); }
  bool backward_done(int stage, int microbatch) const { return backward_.contains({stage, microbatch}); }

  const StageEdges& edges_;
  std::set<std::pair<int, int>> forward_;   // (stage, microbatch)
  std::set<std::pair<int, int>> backward_;  // B or BW
};

}  // namespace orthant
