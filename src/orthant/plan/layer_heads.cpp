#include "orthant/plan/layer_heads.h"

#include <algorithm>
#include <cmath>

namespace orthant {
namespace {

// As in nn/attention_device.cpp.
constexpr double kMostChannels = 128;
constexpr double kChannelStep = 8;

}  // namespace

LayerHeads layer_heads(const UnitSpec& layer, double tokens, double channels, DType compute) {
  const double element = bytes_of(compute);
  const double statistic = std::max<double>(element, bytes_of(DType::float32));
  const auto made_again = static_cast<double>(layer.cost.kept_bytes[0] - layer.cost.kept_bytes[1]);
  const double number = std::max(1.0, std::round((made_again / tokens - channels * element) / statistic));
  return {number, channels / number};
}

bool fuses_heads(const GraphSpec& graph, const UnitSpec& layer, const LayerHeads& heads, const PlanSettings& settings) {
  const bool narrow = settings.compute == DType::bfloat16 || settings.compute == DType::float16;
  const bool masked = std::ranges::any_of(layer.inputs, [&](const auto& name) { return graph.is_batch_field(name); });
  return !settings.on_host && narrow && !settings.drops.scores && !masked && heads.size <= kMostChannels &&
         std::fmod(heads.size, kChannelStep) == 0;
}

}  // namespace orthant
