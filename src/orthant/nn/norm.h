// RMSNorm and LayerNorm, the latter also fused with the dropout and residual addition in front of it. Local: in a pass
// that cuts tokens they see own tokens alone, and the gradients of weight and bias are partial sums.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// x [..., hidden] * rsqrt(mean(x^2) + eps) * weight. Keeps x and one number per row.
at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, Pass& pass);

// The norm of x, and x itself for the residual that is added further on: their gradients are added in the norm's
// backward, without a pass of its own.
struct NormAndResidual {
  at::Tensor norm;
  at::Tensor residual;
};
NormAndResidual rms_norm_and_residual(const at::Tensor& x, Parameter& weight, double eps, Pass& pass);

// (x - mean) * rsqrt(variance + eps) * weight + bias. Keeps x and two numbers per row.
at::Tensor layer_norm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps, Pass& pass);
NormAndResidual layer_norm_and_residual(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps,
                                        Pass& pass);

// layer_norm(residual + dropout(x)). Keeps the sum and two numbers per row; the mask is drawn again in backward.
// x and residual [rows, sequence, hidden] or [rows, hidden].
at::Tensor dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual, double p, std::string_view site,
                                  Parameter& weight, Parameter& bias, double eps, Pass& pass);
// The same with the sum itself, for a residual that is added further on.
NormAndResidual dropout_add_layer_norm_and_residual(const at::Tensor& x, const at::Tensor& residual, double p,
                                                    std::string_view site, Parameter& weight, Parameter& bias,
                                                    double eps, Pass& pass);

}  // namespace orthant::nn
