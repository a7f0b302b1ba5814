#include "orthant/nn/loss.h"

#include <ATen/ATen.h>

#include "orthant/base/error.h"
#include "orthant/nn/cross_entropy.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [tokens, classes]; of logits without a class, too.
at::Tensor rows_of(const at::Tensor& logits, const at::Tensor& targets) {
  return logits.contiguous().view({targets.numel(), logits.size(-1)});
}

struct LossState {
  CrossEntropyOptions options;
  TensorAxis* axis;
  at::DimVector shape;  // of the logits
  bool consumed = false;
};

// Forward reduces three times over tp when the logits are cut, backward is Local. Keeps the logits and one number per
// token: see Note [Logits] in cross_entropy.h.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets, LossState state,
                            Subject subject) {
    BelowAutograd below;
    const at::Tensor matrix = rows_of(logits, targets);
    const at::Tensor flat = targets.contiguous().view({-1});
    CrossEntropyForward result = cross_entropy_forward(matrix, flat, state.options, state.axis, subject);
    ctx->save_for_backward({matrix, flat, result.lse});
    keep(ctx, std::move(state));
    return result.loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    auto& state = kept<LossState>(ctx);
    const variable_list saved = ctx->get_saved_variables();
    if (state.consumed) throw InternalError("a second backward through a cross_entropy that consumed its logits");
    state.consumed = state.options.consume_logits;
    const at::Tensor d_logits =
        cross_entropy_backward(saved[0], saved[1], saved[2], gradients[0], state.options, state.axis);
    return {at::_unsafe_view(d_logits, state.shape), {}, {}, {}};
  }
};

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const CrossEntropyOptions& options,
                         Pass& pass) {
  if (at::GradMode::is_enabled()) {
    return CrossEntropy::apply(logits, targets, LossState{options, pass.tensor, at::DimVector(logits.sizes())},
                               pass.subject());
  }
  BelowAutograd below;
  return cross_entropy_forward(rows_of(logits, targets), targets.contiguous().view({-1}), options, pass.tensor,
                               pass.subject())
      .loss;
}

}  // namespace orthant::nn
