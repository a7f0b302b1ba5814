// The heads of a transformer layer as its placed spec states them, and whether a CUDA device attends by a fused kernel:
// the rule of nn::device::serves_heads() over a spec. Internal to this layer.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/plan/plan_settings.h"

namespace orthant {

// Of one tp rank.
struct LayerHeads {
  double number = 1;
  double size = 0;  // channels of each
};

// `channels`: of all heads of the rank together, what the output projection reads. Selective recompute makes the heads'
// output again, and one statistic per token and head: their bytes tell the number.
LayerHeads layer_heads(const UnitSpec& layer, double tokens, double channels, DType compute);

// Whether scores never exist whole on a CUDA device: nn::device::serves_heads() names the same conditions, but for
// dropout and masks of keys, whose kernels are not priced yet. A layer that reads a batch field has a mask of keys.
bool fuses_heads(const GraphSpec& graph, const UnitSpec& layer, const LayerHeads& heads, const PlanSettings& settings);

}  // namespace orthant
