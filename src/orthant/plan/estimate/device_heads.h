// What attends on a CUDA device: the rule of nn::device::serves_heads() over an operation. Internal to this layer.
#pragma once

#include "orthant/graph/operation.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/program/sizes.h"

namespace orthant {

// What makes the heads' part of attention on a CUDA device. Scores exist whole by ATen's formulas alone.
enum class HeadsBy {
  formulas,  // ops/attention/attention_plain.cpp
  library,   // cuDNN, or FlashAttention where sums must have one order
  kernels,   // ops/attention/attention.cu: with dropout, or with a mask of keys
};

inline constexpr std::int64_t kKernelKeys = 128;  // of a block of the kernels' backward

// Of an operation that attends or makes the gradient of one. `mask`: which of its inputs masks keys.
HeadsBy heads_by(const Operation& attention, std::size_t mask, const UnitSizes& sizes);

// Bits that the kernels keep from forward to backward, one for each probability that may be dropped; in bytes.
double kept_bits(double rows, double heads, double sequence);

}  // namespace orthant
