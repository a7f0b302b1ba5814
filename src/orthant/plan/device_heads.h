// The heads of a transformer layer as its placed spec states them, and what attends on a CUDA device: the rule of
// nn::device::serves_heads() over a spec. Internal to this layer.
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

// What makes the heads' part of attention on a CUDA device. Scores exist whole by ATen's formulas alone.
enum class HeadsBy {
  formulas,  // nn/attention_plain.cpp
  library,   // cuDNN, or FlashAttention where sums must have one order
  kernels,   // nn/attention.cu: with dropout, or with a mask of keys
};

// A layer that reads a batch field has a mask of keys.
HeadsBy heads_by(const GraphSpec& graph, const UnitSpec& layer, const LayerHeads& heads, const PlanSettings& settings);

// Bits that the kernels keep from forward to backward, one for each probability that may be dropped; in bytes.
double kept_bits(double rows, double heads, double sequence);

}  // namespace orthant
