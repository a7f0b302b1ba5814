// residual + x times its factors, without autograd. Local.
#pragma once

#include "orthant/nn/dropout_grid.h"

namespace orthant::nn {

at::Tensor dropout_sum(const DropoutGrid& grid, const at::Tensor& x, const at::Tensor& residual);

}  // namespace orthant::nn
