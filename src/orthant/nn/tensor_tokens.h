// Matrices [tokens, features] that cross the tensor axis: what column and row products, tables and sharded logits
// exchange. Without an axis, or where tokens are not cut, a gather gives its input. Callers run below autograd.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// A matrix that may still be on its way.
class Arriving {
 public:
  explicit Arriving(at::Tensor matrix, std::unique_ptr<Exchange> exchange = nullptr, at::Tensor held = {})
      : matrix_(std::move(matrix)), held_(std::move(held)), exchange_(std::move(exchange)) {}

  // Blocks until it has come.
  at::Tensor get() {
    if (exchange_) exchange_->wait();
    exchange_.reset();
    held_.reset();
    return matrix_;
  }

 private:
  at::Tensor matrix_;
  at::Tensor held_;  // what is read until then
  std::unique_ptr<Exchange> exchange_;
};

// All tokens from each rank's own, where the pass cuts them. Collective over tp then.
Arriving gather_tokens(const at::Tensor& own, const Pass& pass);

// The sum over tp of partial results for all tokens, which it may overwrite; where the pass cuts tokens this rank's
// part of it. `subject` names the parameters that made them. Collective over tp; without an axis the input.
Arriving sum_tokens(const at::Tensor& partial, Subject subject, const Pass& pass);
// The same of what one parameter made: a whole one gives its result as it is.
Arriving sum_tokens(const at::Tensor& partial, const Parameter& parameter, const Pass& pass);

}  // namespace orthant::nn
