// The kernels that each function starts on a CUDA device: interpret/step_variants.h has those of a step. Local.
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
Variants float8_variants(at::ScalarType dtype, const std::set<std::int64_t>& widths);  // of rows that are rounded
Variants dropout_variants(at::ScalarType dtype);
Variants expert_rows_variants(at::ScalarType dtype);
Variants expert_variants(at::ScalarType dtype);  // those and products

}  // namespace orthant::nn::device
