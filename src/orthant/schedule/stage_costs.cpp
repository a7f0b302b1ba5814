#include "orthant/schedule/stage_costs.h"

#include <fmt/format.h>

#include <cmath>

#include "orthant/base/error.h"

namespace orthant {

double StageCost::of(StageKind kind) const {
  switch (kind) {
    case StageKind::F:
      return forward;
    case StageKind::B:
      return inputs;
    case StageKind::W:
      return weights;
    case StageKind::BW:
      return inputs + weights;
  }
  throw InternalError("a stage kind without a cost");
}

StageCosts flop_costs(const StageMap& map, const GraphSpec& graph) {
  StageCosts costs;
  double sum = 0;
  for (const auto& units : map.units) {
    StageCost& cost = costs.emplace_back(StageCost{0, 0, 0, 0});
    for (const int unit : units) {
      const UnitCost& flops = graph.units.at(static_cast<std::size_t>(unit)).cost;
      cost.forward += flops.forward_flops;
      cost.inputs += flops.input_flops;
      cost.weights += flops.weight_flops;
    }
    sum += cost.forward + cost.inputs + cost.weights;
  }
  if (sum > 0) return costs;
  for (std::size_t stage = 0; stage < costs.size(); ++stage) {
    const auto count = static_cast<double>(map.units[stage].size());
    costs[stage] = {count, count, count, 0};
  }
  return costs;
}

void check_costs(const StageCosts& costs, int num_stages) {
  if (static_cast<int>(costs.size()) != num_stages) {
    throw ConfigError(fmt::format("{} stages have {} costs", num_stages, costs.size()),
                      {.remedy = "give one cost per stage"});
  }
  for (std::size_t stage = 0; stage < costs.size(); ++stage) {
    const StageCost& cost = costs[stage];
    for (const double time : {cost.forward, cost.inputs, cost.weights, cost.send}) {
      if (std::isfinite(time) && time >= 0) continue;
      throw ConfigError(fmt::format("a cost of stage {} is {}", stage, time),
                        {.remedy = "give finite costs that are not negative"});
    }
  }
}

}  // namespace orthant
