// Rows of experts on a CUDA device: see expert_rows.cu, and routing.h for the same by plain formulas. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace orthant::nn::device {

// Whether kernels take rows of tokens or of slots: of whole 16-byte vectors, fewer than 2^31 of them.
bool serves_expert_rows(const at::Tensor& rows);

at::Tensor rows_of_tokens(const at::Tensor& x, const at::Tensor& slots, std::int64_t per_token);
at::Tensor sums_of_rows(const at::Tensor& rows, const at::Tensor& places);

// swiglu of gates [rows, 2 width] times weights [rows, 1] in float32.
bool serves_expert_activation(const at::Tensor& gates, const at::Tensor& weights);
at::Tensor expert_activation(const at::Tensor& gates, const at::Tensor& weights);
struct ExpertActivationGradient {
  at::Tensor gates;
  at::Tensor weights;  // undefined when not wanted
};
// Into `again`, which may be `gy`, goes expert_activation(gates, weights), equal bits; undefined: not wanted.
ExpertActivationGradient expert_activation_gradient(const at::Tensor& gy, const at::Tensor& gates,
                                                    const at::Tensor& weights, bool wants_weights,
                                                    const at::Tensor& again);

}  // namespace orthant::nn::device
