// What routers are trained by besides the model's loss, as sums over the tokens whose label counts.
//
// Note [Router loss]: of one row with n such tokens and E experts, count_e of whose slots expert e took and whose
// scores' shares of expert e sum up to p_e, the loss of balance is n E sum_e (count_e / n) (p_e / n): what Switch
// Transformer has for a batch, of every row by itself, so that it means the same however rows are dealt out to ranks
// and microbatches. It counts n times, as other losses do: whoever made the batch divides by the sum of all. Scores'
// shares are the softmax of logits, or sigmoids divided by their sum. The z loss of a token is the square of the
// logarithm of the sum of its logits' exponentials.
#pragma once

#include <ATen/core/Tensor.h>

#include "orthant/nn/pass.h"

namespace orthant::nn {

struct RouterLossKind {
  double balance = 0;
  double z = 0;
  bool sigmoid = false;
};

struct RouterLossForward {
  at::Tensor loss;    // of the tokens that logits are of, a scalar: float64 for float64 logits, else float32
  at::Tensor shares;  // [rows, experts]: E count_e / n
  at::Tensor taken;   // [experts] int64: slots of these tokens that each expert took
};

// logits [tokens, experts] and chosen [tokens, per_token] are of the rank's own tokens, or of all; so are labels
// [tokens]. Sums counts of rows over tp where `own` says that tp ranks have their own tokens, and over cp.
RouterLossForward router_loss(const at::Tensor& logits, const at::Tensor& chosen, const at::Tensor& labels,
                              const RouterLossKind& kind, const Pass& pass, bool own);
// The gradient of the logits. Local.
at::Tensor router_loss_gradient(const at::Tensor& d_loss, const at::Tensor& logits, const at::Tensor& labels,
                                const at::Tensor& shares, const RouterLossKind& kind, const Pass& pass, bool own);

}  // namespace orthant::nn
