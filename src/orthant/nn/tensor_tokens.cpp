#include "orthant/nn/tensor_tokens.h"

#include <ATen/ATen.h>

namespace orthant::nn {

Arriving gather_tokens(const at::Tensor& own, const Pass& pass) {
  if (!pass.cuts_tokens()) return Arriving(own);
  at::Tensor all = at::empty({pass.num_tokens(), own.size(1)}, own.options());
  auto exchange = pass.tensor->gather(all, own);
  return Arriving(std::move(all), std::move(exchange), own);
}

Arriving sum_tokens(const at::Tensor& partial, const TensorCut& cut, const Pass& pass) {
  if (pass.tensor == nullptr || cut.dim < 0) return Arriving(partial);
  if (!pass.cuts_tokens()) return Arriving(partial, cut.sums ? pass.tensor->sum(partial) : nullptr);
  const Range own = pass.own_tokens();
  if (!cut.sums) return Arriving(partial.narrow(0, own.begin, own.size()).clone());
  at::Tensor sum = at::empty({own.size(), partial.size(1)}, partial.options());
  auto exchange = pass.tensor->scatter(sum, partial);
  return Arriving(std::move(sum), std::move(exchange), partial);
}

}  // namespace orthant::nn
