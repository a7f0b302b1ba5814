// Says once of each expert that it starves or hogs: for kPatience steps in a row it took a small or a large part of
// what it would take if all of its layer took the same. Local.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/train/metrics.h"

namespace orthant {

// From PendingStep::Numbers::expert_loads.
std::vector<LayerLoads> layer_loads(const GraphSpec& graph, const std::vector<double>& slots);

class ExpertWatch {
 public:
  static constexpr int kPatience = 100;
  static constexpr double kStarves = 0.1;  // of an equal share
  static constexpr double kHogs = 3;

  // What is new since the last step.
  std::vector<std::string> step(const std::vector<LayerLoads>& loads);

 private:
  struct Streak {
    int starved = 0;
    int hogged = 0;
    bool said = false;
  };
  std::map<std::pair<std::string, std::size_t>, Streak> streaks_;  // by layer and expert
};

}  // namespace orthant
