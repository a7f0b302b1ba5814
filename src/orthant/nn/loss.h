// Losses: weighted sums over targets, never means. Whoever made the batch divides by the global sum of weights. Local,
// but of logits that are cut over tp.
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

// logits [..., classes], targets int64 [...] -> sum of weight[target] * -log softmax(logits)[target] over targets that
// are not ignored, a scalar in the logits' dtype (float32 for narrower ones), accumulated in double.
// Keeps the logits, which backward overwrites with their gradient when they may be consumed, and one number per target.
// Cut logits are [..., own classes], the tp axis's part of options.classes, for the same targets, which count all
// classes: three reductions over tp of one number per target in forward, none in backward, and the same loss
// everywhere.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
                         Pass& pass);

}  // namespace orthant::nn
