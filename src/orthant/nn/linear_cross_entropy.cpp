#include "orthant/nn/linear_cross_entropy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/nn/head_loss.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"
#include "orthant/nn/tensor_tokens.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Tokens [all, in], where x may hold this rank's own. Collective over tp then.
at::Tensor tokens_of(const HeadLoss& head, const at::Tensor& x) {
  const at::Tensor own = as_matrix(x);
  if (!head.pass->cuts_tokens()) return own;
  if (head.weight->cut.column()) return gather_tokens(own, *head.pass).get();
  throw InternalError("linear_cross_entropy: tokens are cut over tp, and the weight is not");
}

// The whole gradient of x. Collective over tp where the weight is cut.
at::Tensor whole_x(const HeadGradients& gradients, const HeadLoss& head) {
  return gradients.of_x ? sum_tokens(gradients.x, *head.weight, *head.pass).get() : at::Tensor();
}

struct JoinedState {
  HeadLoss head;
  at::DimVector shape;  // of x
  bool made = false;    // forward has made all gradients
};

// Forward gathers tokens that are cut, and reduces over tp for every chunk; whichever makes the gradient of x sums it.
// Keeps the gradient of x, or x (all tokens) and one number per token: see Note [Chunked logits].
struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, const at::Tensor& targets, JoinedState state) {
    BelowAutograd below;
    const HeadLoss& head = state.head;
    const at::Tensor tokens = tokens_of(head, x);
    state.made = head.pass->loss_gradient.defined();
    at::Tensor loss;
    if (state.made) {
      HeadGradients gradients{.of_x = x.requires_grad(), .of_weights = head.trains()};
      loss = forward_chunks(head, tokens, targets, nullptr, &gradients);
      if (gradients.of_x) ctx->save_for_backward({whole_x(gradients, head)});
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
    const auto& state = kept<JoinedState>(ctx);
    const variable_list saved = ctx->get_saved_variables();
    at::Tensor d_x;
    if (state.made) {
      d_x = saved.empty() ? at::Tensor() : saved.front();
    } else {
      d_x = made_again(state.head, saved, gradients[0], ctx->needs_input_grad(0));
    }
    return {d_x.defined() ? at::_unsafe_view(d_x, state.shape) : d_x, {}, {}, {}, {}};
  }

  static at::Tensor made_again(const HeadLoss& head, const variable_list& saved, const at::Tensor& d_loss,
                               bool needs_x) {
    const bool later = head.pass->defer_weights && head.trains();
    HeadGradients made{.of_x = needs_x, .of_weights = head.trains() && !later};
    if (made.of_x || made.of_weights) backward_chunks(head, saved[0], saved[1], saved[2], d_loss, made);
    if (later) {
      head.pass->add_weight_gradient([head, saved, d_loss] {
        BelowAutograd below;
        HeadGradients weights{.of_weights = true};
        backward_chunks(head, saved[0], saved[1], saved[2], d_loss, weights);
      });
    }
    return whole_x(made, head);
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, Parameter& weight, Parameter* bias, const at::Tensor& targets,
                                const LinearCrossEntropyOptions& options, Pass& pass) {
  HeadLoss head{&weight, bias, &pass, options.loss, options.chunk_rows, options.subject};
  head.loss.consume_logits = true;
  const at::Tensor flat = targets.contiguous().view({-1});
  if (!at::GradMode::is_enabled()) {
    BelowAutograd below;
    return forward_chunks(head, tokens_of(head, x), flat, nullptr, nullptr);
  }
  return LinearCrossEntropy::apply(x, weight.value, if_defined(bias == nullptr ? at::Tensor() : bias->value), flat,
                                   JoinedState{std::move(head), at::DimVector(x.sizes())});
}

}  // namespace orthant::nn
