// RMSNorm and LayerNorm by the code that serves dtype and device best: kernels on the CPU and on CUDA devices, formulas
// elsewhere. Matrices are [tokens, width] and contiguous. Local.
#pragma once

#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::nn {

struct NormWeights {
  Norm kind = Norm::rms;
  double eps = 0;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // LayerNorm's

  at::Tensor bias_value() const { return bias == nullptr ? at::Tensor() : bias->value; }
};

// Narrow types on the CPU are widened for the kernels and rounded after them.
Normalized norm_forward(const at::Tensor& x, const NormWeights& norm);

struct SumAndNorm {
  at::Tensor sum;
  Normalized out;
};
// LayerNorm of residual + x (times the factors of a grid, where one is given).
SumAndNorm sum_norm_forward(const at::Tensor& x, const at::Tensor& residual, const NormWeights& norm,
                            const DropoutGrid* grid);

// `residual`, where defined, is added to the input's gradient before that is dropped.
NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid, const at::Tensor& residual = {});

// Adds the sums over rows of what a backward left for the weights to their gradients.
void add_weight_gradients(Parameter& weight, Parameter* bias, const NormGradients& gradients);

}  // namespace orthant::nn
