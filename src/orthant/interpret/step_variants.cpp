#include "orthant/interpret/step_variants.h"

namespace orthant::nn::device {

Variants step_variants(at::ScalarType dtype, const std::set<std::int64_t>& widths) {
  Variants all;
  if (dtype != at::kBFloat16 && dtype != at::kHalf && dtype != at::kFloat) return all;
  const auto add = [&all](const Variants& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const std::int64_t width : widths) {
    add(norm_variants(dtype, width));
    add(layer_norm_variants(dtype, width));
  }
  add(activation_variants(dtype));
  add(rotary_variants(dtype));
  add(embedding_variants(dtype));
  add(cross_entropy_variants(dtype));
  add(finite_variants(dtype));
  add(columns_variants(dtype));
  add(dropout_variants(dtype));
  return all;
}

}  // namespace orthant::nn::device
