#include "orthant/nn/attention.h"

#include <ATen/ATen.h>

#include "orthant/nn/attention_heads.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AttentionState {
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  HeadsSetup heads;
  bool has_residual;
};

at::Tensor output_projection(const at::Tensor& out, const AttentionState& state, const at::Tensor& residual) {
  const at::Tensor y = project_out(as_matrix(out), *state.weight, state.bias, residual, *state.pass);
  return shaped_out(y, out.sizes().slice(0, 2), *state.weight, *state.pass);
}

// Where the weight is cut forward sums over tp, and backward gathers where tokens are cut; else both are Local. Keeps
// the rotated qkv, and what heads_forward() returns unless that is computed again.
struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, const std::optional<at::Tensor>& residual,
                            AttentionState state) {
    BelowAutograd below;
    const at::Tensor joined = qkv.contiguous();
    const HeadsOutput output = heads_forward(joined, state.heads, true);
    if (state.pass->recompute == Recompute::selective) {
      ctx->save_for_backward({joined});
    } else {
      ctx->save_for_backward({joined, output.out, output.lse, output.kept});
    }
    at::Tensor y = output_projection(output.out, state, residual.value_or(at::Tensor()));
    keep(ctx, std::move(state));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<AttentionState>(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const HeadsOutput output =
        saved.size() == 1 ? heads_forward(qkv, state.heads, false) : HeadsOutput{saved[1], saved[2], saved[3]};
    const OutGradient gy = out_gradient(gradients[0], *state.weight, *state.pass, ctx->needs_input_grad(0));
    at::Tensor d_qkv;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor d_out = project_back(gy.all, state.weight->value, state.pass->products);
      d_qkv = heads_backward(qkv, output, d_out.view(output.out.sizes()), state.heads);
    }
    add_projection_gradient(*state.pass, *state.weight, state.bias, gy, as_matrix(output.out));
    return {d_qkv, {}, {}, state.has_residual ? gradients[0] : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& qkv, Parameter& weight, Parameter* bias, const AttentionOptions& options,
                     Pass& pass, const at::Tensor& residual) {
  AttentionOptions adjusted = options;
  if (weight.cut.row()) adjusted.first_head = weight.cut.first / options.head_size;
  AttentionState state{&weight, bias, &pass, heads_setup(qkv, adjusted, pass), residual.defined()};
  if (at::GradMode::is_enabled()) {
    return Attention::apply(qkv, weight.value, if_defined(bias == nullptr ? at::Tensor() : bias->value),
                            if_defined(residual), std::move(state));
  }
  BelowAutograd below;
  return output_projection(heads_forward(qkv.contiguous(), state.heads, true).out, state, residual);
}

}  // namespace orthant::nn
