#include "orthant/plan/layer_heads.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace orthant {
namespace {

// As in nn/attention_library_device.cpp.
constexpr double kMostChannels = 128;
constexpr double kChannelStep = 8;

// As in nn/attention_device.cpp.
constexpr std::array<double, 3> kKernelChannels = {32, 64, 128};
constexpr double kWordKeys = 32;

}  // namespace

LayerHeads layer_heads(const UnitSpec& layer, double tokens, double channels, DType compute) {
  const double element = bytes_of(compute);
  const double statistic = std::max<double>(element, bytes_of(DType::float32));
  const auto made_again = static_cast<double>(layer.cost.kept_bytes[0] - layer.cost.kept_bytes[1]);
  const double number = std::max(1.0, std::round((made_again / tokens - channels * element) / statistic));
  return {number, channels / number};
}

HeadsBy heads_by(const GraphSpec& graph, const UnitSpec& layer, const LayerHeads& heads, const PlanSettings& settings) {
  const bool narrow = settings.compute == DType::bfloat16 || settings.compute == DType::float16;
  if (!narrow) return HeadsBy::formulas;
  const bool masked = std::ranges::any_of(layer.inputs, [&](const auto& name) { return graph.is_batch_field(name); });
  if (settings.drops.scores || masked) {
    const bool sized = std::ranges::find(kKernelChannels, heads.size) != kKernelChannels.end();
    return sized ? HeadsBy::kernels : HeadsBy::formulas;
  }
  const bool sized = heads.size <= kMostChannels && std::fmod(heads.size, kChannelStep) == 0;
  return sized ? HeadsBy::library : HeadsBy::formulas;
}

double kept_bits(double rows, double heads, double sequence) {
  return rows * heads * sequence * std::ceil(sequence / kWordKeys) * bytes_of(DType::float32);
}

}  // namespace orthant
