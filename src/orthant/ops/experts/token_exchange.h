// Rows of tokens between the ranks that hold experts: there sorted by expert, here by the rank that has the tokens. See
// Note [Routed rows] in ops/experts/rule.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "orthant/nn/expert_axis.h"

namespace orthant::nn {

// Rows per rank that sends them and expert of this rank: [degree x own experts], from this rank's rows per expert.
// Collective over ep.
at::Tensor held_counts(const at::Tensor& counts, ExpertAxis& axis);

// Rows under way: `rows` has its size, and holds them once `exchange` was waited for.
struct MovingRows {
  at::Tensor rows;
  std::unique_ptr<Exchange> exchange;
};

// The rows of this rank's experts, from those of this rank's tokens. Collective over ep.
MovingRows to_experts(const at::Tensor& rows, const at::Tensor& counts, const at::Tensor& held, ExpertAxis& axis);
// And back. Collective over ep.
MovingRows from_experts(const at::Tensor& rows, const at::Tensor& counts, const at::Tensor& held, ExpertAxis& axis);

}  // namespace orthant::nn
