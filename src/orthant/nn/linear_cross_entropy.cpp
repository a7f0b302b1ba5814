#include "orthant/nn/linear_cross_entropy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/nn/cross_entropy.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"
#include "orthant/nn/tensor_tokens.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What every chunk needs besides its rows.
struct Head {
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  CrossEntropyOptions loss;
  std::int64_t chunk_rows;
  Subject subject;

  bool trains() const { return weight->trainable() || (bias != nullptr && bias->trainable()); }

  // Tokens [all, in], where x may hold this rank's own. Collective over tp then.
  at::Tensor tokens_of(const at::Tensor& x) const {
    const at::Tensor own = as_matrix(x);
    if (!pass->cuts_tokens()) return own;
    if (weight->cut.column()) return gather_tokens(own, *pass).get();
    throw InternalError("linear_cross_entropy: tokens are cut over tp, and the weight is not");
  }

  at::Tensor logits(const at::Tensor& x) const {
    const at::Tensor bias_value = bias == nullptr ? at::Tensor() : bias->value;
    if (!device::serves(x)) return project(x, weight->value, bias_value, {}, pass->products);
    at::Tensor out = device::rows_at_borders(x.size(0), weight->value.size(0), x);
    project_into(out, x, weight->value, bias_value, {}, pass->products);
    return out;
  }

  // action(first row, rows) of each chunk, in order; at least one.
  template <typename Action>
  void for_chunks(std::int64_t rows, const Action& action) const {
    const std::int64_t size = chunk_rows > 0 ? std::min(chunk_rows, rows) : rows;
    std::int64_t first = 0;
    do {
      action(first, std::min(size, rows - first));
      first += size;
    } while (first < rows);
  }
};

// Which gradients are made, and that of x so far: of this rank's classes.
struct Gradients {
  bool of_x = false;
  bool of_weights = false;
  at::Tensor x = {};

  // Those of one chunk, whose logits become their gradient.
  void add_chunk(const Head& head, at::Tensor logits, const at::Tensor& lse, const at::Tensor& d_loss,
                 const at::Tensor& tokens, const at::Tensor& targets, std::int64_t first) {
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
    Pass now{.products = head.pass->products};
    add_projection_gradient(now, *head.weight, head.bias, {d_logits, d_logits}, chunk);
  }

  // The whole gradient of x. Collective over tp where the weight is cut.
  at::Tensor whole_x(const Head& head) const {
    return of_x ? sum_tokens(x, *head.weight, *head.pass).get() : at::Tensor();
  }
};

// The loss; and lse of all tokens where `lse` is given.
at::Tensor forward_chunks(const Head& head, const at::Tensor& tokens, const at::Tensor& targets,
                          std::vector<at::Tensor>* lse, Gradients* gradients) {
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
    gradients->add_chunk(head, std::move(logits), found.lse, head.pass->loss_gradient, tokens, some, first);
  });
  return total.to(dtype);
}

// Gradients from logits that are made again. Local.
void backward_chunks(const Head& head, const at::Tensor& tokens, const at::Tensor& targets, const at::Tensor& lse,
                     const at::Tensor& d_loss, Gradients& gradients) {
  head.for_chunks(targets.size(0), [&](std::int64_t first, std::int64_t rows) {
    gradients.add_chunk(head, head.logits(tokens.narrow(0, first, rows)), lse.narrow(0, first, rows), d_loss, tokens,
                        targets.narrow(0, first, rows), first);
  });
}

struct HeadState {
  Head head;
  at::DimVector shape;  // of x
  bool made = false;    // forward has made all gradients
};

// Forward gathers tokens that are cut, and reduces over tp for every chunk; whichever makes the gradient of x sums it.
// Keeps the gradient of x, or x (all tokens) and one number per token: see Note [Chunked logits].
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, const at::Tensor& targets, HeadState state) {
    BelowAutograd below;
    const Head& head = state.head;
    const at::Tensor tokens = head.tokens_of(x);
    state.made = head.pass->loss_gradient.defined();
    at::Tensor loss;
    if (state.made) {
      Gradients gradients{.of_x = x.requires_grad(), .of_weights = head.trains()};
      loss = forward_chunks(head, tokens, targets, nullptr, &gradients);
      if (gradients.of_x) ctx->save_for_backward({gradients.whole_x(head)});
    } else {
      std::vector<at::Tensor> lse;
      loss = forward_chunks(head, tokens, targets, &lse, nullptr);
      ctx->save_for_backward({tokens, targets, lse.size() == 1 ? lse.front() : at::cat(lse)});
    }
    keep(ctx, std::move(state));
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<HeadState>(ctx);
    const variable_list saved = ctx->get_saved_variables();
    at::Tensor d_x;
    if (state.made) {
      d_x = saved.empty() ? at::Tensor() : saved.front();
    } else {
      d_x = made_again(state.head, saved, gradients[0], ctx->needs_input_grad(0));
    }
    return {d_x.defined() ? at::_unsafe_view(d_x, state.shape) : d_x, {}, {}, {}, {}};
  }

  static at::Tensor made_again(const Head& head, const variable_list& saved, const at::Tensor& d_loss, bool needs_x) {
    const bool later = head.pass->defer_weights && head.trains();
    Gradients made{.of_x = needs_x, .of_weights = head.trains() && !later};
    if (made.of_x || made.of_weights) backward_chunks(head, saved[0], saved[1], saved[2], d_loss, made);
    if (later) {
      head.pass->add_weight_gradient([head, saved, d_loss] {
        BelowAutograd below;
        Gradients weights{.of_weights = true};
        backward_chunks(head, saved[0], saved[1], saved[2], d_loss, weights);
      });
    }
    return made.whole_x(head);
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, Parameter& weight, Parameter* bias, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options, Pass& pass) {
  Head head{&weight, bias, &pass, options.loss, options.chunk_rows, options.subject};
  head.loss.consume_logits = true;
  const at::Tensor flat = targets.contiguous().view({-1});
  if (!at::GradMode::is_enabled()) {
    BelowAutograd below;
    return forward_chunks(head, head.tokens_of(x), flat, nullptr, nullptr);
  }
  return LinearCrossEntropy::apply(x, weight.value, if_defined(bias == nullptr ? at::Tensor() : bias->value), flat,
                                   HeadState{std::move(head), at::DimVector(x.sizes())});
}

}  // namespace orthant::nn
