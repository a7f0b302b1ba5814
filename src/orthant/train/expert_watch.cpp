#include "orthant/train/expert_watch.h"

#include <fmt/format.h>

#include <numeric>
#include <tuple>
#include <utility>

namespace orthant {

std::vector<LayerLoads> layer_loads(const GraphSpec& graph, const std::vector<double>& slots) {
  std::vector<LayerLoads> loads;
  auto begin = slots.begin();
  for (const UnitSpec& unit : graph.units) {
    const auto experts = unit.num_experts();
    if (experts == 0) continue;
    LayerLoads layer{unit.name, {begin, begin + experts}};
    begin += experts + 1;
    const double all = std::accumulate(layer.shares.begin(), layer.shares.end(), 0.0);
    if (all == 0) continue;  // nobody told
    layer.dropped = *(begin - 1) / all;
    for (double& share : layer.shares) share /= all;
    loads.push_back(std::move(layer));
  }
  return loads;
}

std::vector<std::string> ExpertWatch::step(const std::vector<LayerLoads>& loads) {
  std::vector<std::string> found;
  for (const LayerLoads& one : loads) {
    const auto& [layer, shares] = std::tie(one.layer, one.shares);
    const auto experts = static_cast<double>(shares.size());
    for (std::size_t e = 0; e < shares.size(); ++e) {
      Streak& streak = streaks_[{layer, e}];
      const double part = shares[e] * experts;
      streak.starved = part < kStarves ? streak.starved + 1 : 0;
      streak.hogged = part > kHogs ? streak.hogged + 1 : 0;
      const bool starves = streak.starved >= kPatience;
      if (streak.said || !(starves || streak.hogged >= kPatience)) continue;
      streak.said = true;
      found.push_back(fmt::format(
          "{}: expert {} {} for {} steps: it took {:.2g} of an equal share; a larger model.router_aux_loss_coef "
          "spreads tokens",
          layer, e, starves ? "starved" : "hogged", kPatience, part));
    }
  }
  return found;
}

}  // namespace orthant
