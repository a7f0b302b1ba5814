// The kernels that a model's step on a CUDA device starts, so that they can be compiled before it, side by side. Local.
#pragma once

#include <set>

#include "orthant/nn/device_variants.h"

namespace orthant::nn::device {

// Of all functions on aligned rows; `widths` are those of a model's values. None for a dtype without kernels.
Variants step_variants(at::ScalarType dtype, const std::set<std::int64_t>& widths);

}  // namespace orthant::nn::device
