// The factors of a dropout site, 0 or 1 / (1 - p), by the arithmetic of tensors: what restatements multiply with.
#pragma once

#include <ATen/ATen.h>

#include "orthant/ops/dropout/dropout.h"

namespace orthant::nn {

// [rows, positions, channels] or [rows, channels] in the dtype and on the device asked for; ones where nothing is
// dropped. `first_position` and `first_channel` are global.
inline at::Tensor dropout_factors(const Pass& pass, std::string_view site, double p, at::IntArrayRef shape,
                                  const at::TensorOptions& options, std::int64_t first_position = 0,
                                  std::int64_t first_channel = 0) {
  at::NoGradGuard no_grad;
  if (!drops(p, pass)) return at::ones(shape, options);
  const DropoutGrid grid = dropout_grid(pass, site, p, shape, first_position, first_channel);
  const std::int64_t tokens = c10::multiply_integers(shape.slice(0, shape.size() - 1));
  return plain_dropout_factors(grid, tokens, shape.back(), options).view(shape);
}

}  // namespace orthant::nn
