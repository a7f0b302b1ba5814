// Cross-entropy on matrices, without autograd: fused kernels on the CPU, ATen's formulas elsewhere and as the kernels'
// oracle. logits [tokens, classes] contiguous, targets [tokens] int64. Local.
//
// Note [Logits]: forward reads the logits once and keeps one number per token, the logarithm of the sum of
// exponentials; backward reads them once more and writes the gradient, already scaled, over them or beside them.
// Writing the gradient in forward would save the second exponential, but cost another pass over memory to scale it.
#pragma once

#include "orthant/nn/loss.h"

namespace orthant::nn {

struct CrossEntropyForward {
  at::Tensor loss;  // a scalar: float64 for float64 logits, else float32
  at::Tensor lse;   // [tokens]: float64 on the CPU, elsewhere the loss's dtype; of ignored targets anything
};

CrossEntropyForward cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                          const CrossEntropyOptions& options);

// d_loss * weight * (softmax - onehot), rows of zeros where the target is ignored. Into the logits' memory when they
// are consumed and of a dtype the kernels serve, else a new tensor.
at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                  const at::Tensor& d_loss, const CrossEntropyOptions& options);

// The same by ATen's formulas; lse has the loss's dtype.
CrossEntropyForward plain_cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                                const CrossEntropyOptions& options);
at::Tensor plain_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                        const at::Tensor& d_loss, const CrossEntropyOptions& options);

}  // namespace orthant::nn
