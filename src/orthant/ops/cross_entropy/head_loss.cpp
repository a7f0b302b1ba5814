#include "orthant/ops/cross_entropy/head_loss.h"

#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {

at::Tensor HeadLoss::logits(const at::Tensor& x) const {
  const at::Tensor bias_value = bias == nullptr ? at::Tensor() : bias->value;
  if (!device::serves(x)) return project(x, weight->value, bias_value, {}, pass->products);
  at::Tensor out = device::rows_at_borders(x.size(0), weight->value.size(0), x);
  project_into(out, x, weight->value, bias_value, {}, pass->products);
  return out;
}

void HeadGradients::add_chunk(const HeadLoss& head, at::Tensor logits, const at::Tensor& lse, const at::Tensor& tokens,
                              const at::Tensor& targets, std::int64_t first) {
  const std::int64_t rows = targets.size(0);
  const at::Tensor d_logits = cross_entropy_backward(logits, targets, lse, d_loss, head.loss, head.pass->tensor);
  logits.reset();
  const at::Tensor chunk = tokens.narrow(0, first, rows);
  if (of_x && rows == tokens.size(0)) {
    x = project_back(d_logits, head.weight->value, head.pass->products);
  } else if (of_x) {
    if (!x.defined()) x = at::empty_like(tokens);
    x.narrow(0, first, rows).copy_(project_back(d_logits, head.weight->value, head.pass->products));
  }
  if (!of_weights) return;
  if (head.weight->trainable()) add_product_gradient(*head.weight, d_logits, chunk, head.pass->products);
  if (head.bias != nullptr) add_column_sums(*head.bias, d_logits);
}

at::Tensor forward_chunks(const HeadLoss& head, const at::Tensor& tokens, const at::Tensor& targets,
                          std::vector<at::Tensor>* lse, HeadGradients* gradients) {
  at::Tensor total;
  at::ScalarType dtype = at::kFloat;
  head.for_chunks(targets.size(0), [&](std::int64_t first, std::int64_t rows) {
    at::Tensor logits = head.logits(tokens.narrow(0, first, rows));
    const at::Tensor some = targets.narrow(0, first, rows);
    const CrossEntropyForward found = cross_entropy_forward(logits, some, head.loss, head.pass->tensor, head.subject);
    dtype = found.loss.scalar_type();
    const at::Tensor loss = found.loss.to(at::kDouble);
    total = total.defined() ? total + loss : loss;
    if (lse != nullptr) lse->push_back(found.lse);
    if (gradients == nullptr) return;
    gradients->add_chunk(head, std::move(logits), found.lse, tokens, some, first);
  });
  return total.to(dtype);
}

void backward_chunks(const HeadLoss& head, const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& lse,
                     HeadGradients& gradients) {
  head.for_chunks(targets.size(0), [&](std::int64_t first, std::int64_t rows) {
    gradients.add_chunk(head, head.logits(tokens.narrow(0, first, rows)), lse.narrow(0, first, rows), tokens,
                        targets.narrow(0, first, rows), first);
  });
}

}  // namespace orthant::nn
