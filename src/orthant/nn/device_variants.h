// The kernels that a model's step on a CUDA device starts, so that they can be compiled before it, side by side. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <vector>

#include "orthant/cuda/kernel.h"

namespace orthant::nn::device {

using Variants = std::vector<cuda::KernelLibrary::Variant>;

Variants norm_variants(at::ScalarType dtype, std::int64_t width);
Variants layer_norm_variants(at::ScalarType dtype, std::int64_t width);
Variants activation_variants(at::ScalarType dtype);
Variants rotary_variants(at::ScalarType dtype);
Variants embedding_variants(at::ScalarType dtype);
Variants cross_entropy_variants(at::ScalarType dtype);
Variants finite_variants(at::ScalarType dtype);
Variants columns_variants(at::ScalarType dtype);
Variants dropout_variants(at::ScalarType dtype);

// Of all functions on aligned rows; `widths` are those of a model's values. None for a dtype without kernels.
Variants step_variants(at::ScalarType dtype, const std::set<std::int64_t>& widths);

}  // namespace orthant::nn::device
