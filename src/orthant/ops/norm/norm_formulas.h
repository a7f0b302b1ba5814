// RMSNorm and LayerNorm, twice: `fused` runs the kernels (float32 and float64 on the CPU), `plain` is
// made of ATen's functions, serves everything else and is the fused one's oracle. Local.
#pragma once

#include "orthant/ops/dropout/dropout.h"

namespace orthant::nn {

enum class Norm { rms, layer };

// y has x's shape [tokens, width]; statistics [tokens, 1] (rstd) or [tokens, 2] (mean, rstd), in float64 for float64
// and in float32 otherwise.
struct Normalized {
  at::Tensor y;
  at::Tensor statistics;
};

// What backward reads. x is what was normalised.
struct NormInput {
  at::Tensor x;
  at::Tensor statistics;
  at::Tensor weight;
};

// Which gradients to compute. Computed together or in two calls they have the same bits.
struct NormParts {
  bool input = true;
  bool weights = true;
};

// Those of parameters are the column sums (columns.h) of [blocks, width] in the statistics' dtype. `dropped` is x times
// the factors of a grid, where one was given.
struct NormGradients {
  at::Tensor x;
  at::Tensor dropped;
  at::Tensor weight;
  at::Tensor bias;  // LayerNorm's
};

namespace plain {
Normalized norm(Norm kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid = nullptr);
// residual + x (times the factors of a grid, where one is given), in x's dtype.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutGrid* grid);
}  // namespace plain

// Tensors are contiguous and of one dtype.
namespace fused {
Normalized norm(Norm kind, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
NormGradients norm_backward(Norm kind, const at::Tensor& gy, const NormInput& input, NormParts parts,
                            const DropoutGrid* grid = nullptr);
// As plain::dropout_add into `sum`, and LayerNorm of it, row by row.
Normalized dropout_add_norm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual,
                            const DropoutGrid* grid, const at::Tensor& weight, const at::Tensor& bias, double eps);
}  // namespace fused

// On a CUDA device, where serves_rms_norm() or serves_layer_norm(). `residual`, where defined, is added to the gradient
// of x after that is rounded, and before it is dropped.
namespace device {
bool serves_rms_norm(const at::Tensor& x);
Normalized rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
NormGradients rms_norm_backward(const at::Tensor& gy, const NormInput& input, NormParts parts,
                                const at::Tensor& residual = {});
bool serves_layer_norm(const at::Tensor& x);
Normalized layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
NormGradients layer_norm_backward(const at::Tensor& gy, const NormInput& input, NormParts parts,
                                  const DropoutGrid* grid = nullptr, const at::Tensor& residual = {});
// As fused::dropout_add_norm, but that x times its factors is rounded before it is added.
Normalized dropout_add_norm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual,
                            const DropoutGrid* grid, const at::Tensor& weight, const at::Tensor& bias, double eps);
}  // namespace device

}  // namespace orthant::nn
