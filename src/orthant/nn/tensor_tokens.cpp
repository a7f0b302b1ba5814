#include "orthant/nn/tensor_tokens.h"

#include <ATen/ATen.h>

namespace orthant::nn {

Arriving gather_tokens(const at::Tensor& own, const Pass& pass) {
  if (!pass.cuts_tokens()) return Arriving(own);
  at::Tensor all = at::empty({pass.num_tokens(), own.size(1)}, own.options());
  auto exchange = pass.tensor->gather(all, own);
  return Arriving(std::move(all), std::move(exchange), own);
}

Arriving sum_tokens(const at::Tensor& partial, Subject subject, const Pass& pass) {
  if (pass.tensor == nullptr) return Arriving(partial);
  if (!pass.cuts_tokens()) return Arriving(partial, pass.tensor->sum(partial, subject));
  at::Tensor sum = at::empty({pass.own_tokens().size(), partial.size(1)}, partial.options());
  auto exchange = pass.tensor->scatter(sum, partial, subject);
  return Arriving(std::move(sum), std::move(exchange), partial);
}

Arriving sum_tokens(const at::Tensor& partial, const Parameter& parameter, const Pass& pass) {
  return parameter.cut.dim < 0 ? Arriving(partial) : sum_tokens(partial, parameter.subject, pass);
}

}  // namespace orthant::nn
