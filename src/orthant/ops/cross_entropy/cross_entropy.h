// Cross-entropy: the sum over targets that are not ignored of weight[target] * -log softmax(logits)[target], never a
// mean; whoever made the batch divides by the global sum of weights. Fused kernels on the CPU, ATen's formulas
// elsewhere and as the kernels' oracle. logits [tokens, classes] contiguous, targets [tokens] int64.
//
// Note [Logits]: forward reads the logits once and keeps one number per token, the logarithm of the sum of
// exponentials; backward reads them once more and writes the gradient, already scaled, over them or beside them.
// Writing the gradient in forward would save the second exponential, but cost another pass over memory to scale it.
// Logits that are cut over tp are never gathered: each rank makes that number of its own classes, and the ranks
// exchange one number per token three times, for the whole number and the target's logit.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  at::Tensor class_weights = {};  // [classes]; undefined: all 1
  std::int64_t classes = 0;       // of all ranks, when the logits are cut over tp; 0: the logits are whole
  // Backward may overwrite the logits with their gradient: nobody reads them any more. Saves a copy of them.
  bool consume_logits = false;
};

struct CrossEntropyForward {
  at::Tensor loss;  // a scalar: float64 for float64 logits, else float32; accumulated in double
  at::Tensor lse;   // [tokens], of all ranks' classes: float64 on the CPU, elsewhere the loss's dtype; of ignored
                    // targets anything
};

// Collective over the axis when options.classes says that the logits are cut; `subject` names the unit that asks. Local
// otherwise, and without an axis.
CrossEntropyForward cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                          const CrossEntropyOptions& options, TensorAxis* axis = nullptr,
                                          Subject subject = {});

// d_loss * weight * (softmax - onehot), rows of zeros where the target is ignored. Into the logits' memory when they
// are consumed and of a dtype the kernels serve, else a new tensor. Local.
at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                  const at::Tensor& d_loss, const CrossEntropyOptions& options,
                                  TensorAxis* axis = nullptr);

// The same by ATen's formulas; lse has the loss's dtype.
CrossEntropyForward plain_cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets,
                                                const CrossEntropyOptions& options, TensorAxis* axis = nullptr,
                                                Subject subject = {});
at::Tensor plain_cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                                        const at::Tensor& d_loss, const CrossEntropyOptions& options,
                                        TensorAxis* axis = nullptr);

// On a CUDA device, where serves_logits(). The columns of `logits` are the classes from first_class on.
namespace device {
bool serves_logits(const at::Tensor& logits);
struct ClassNumbers {
  at::Tensor lse;     // float32 [tokens]
  at::Tensor chosen;  // the targets' logits; 0 where the target is no column
};
ClassNumbers class_numbers(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first_class);
// Into `out`, which may be the logits; weights float32 [tokens], d_loss a float32 scalar.
void class_gradients(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& targets,
                     std::int64_t first_class, const at::Tensor& lse, const at::Tensor& weights,
                     const at::Tensor& d_loss);
}  // namespace device

}  // namespace orthant::nn
