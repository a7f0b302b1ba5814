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

at::Tensor output_projection(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& bias,
                             const at::Tensor& residual) {
  const at::Tensor added = residual.defined() ? as_matrix(residual) : at::Tensor();
  return at::_unsafe_view(project(as_matrix(out), weight, bias, added), {out.size(0), out.size(1), weight.size(0)});
}

// Forward and backward are Local. Keeps the rotated qkv, and what heads_forward() returns unless that is computed
// again.
struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                            AttentionState state) {
    BelowAutograd below;
    const at::Tensor joined = qkv.contiguous();
    const HeadsOutput output = heads_forward(joined, state.heads, true);
    if (state.pass->recompute == Recompute::selective) {
      ctx->save_for_backward({joined});
    } else {
      ctx->save_for_backward({joined, output.out, output.lse});
    }
    keep(ctx, std::move(state));
    return output_projection(output.out, weight, bias.value_or(at::Tensor()), residual.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<AttentionState>(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const HeadsOutput output =
        saved.size() == 1 ? heads_forward(qkv, state.heads, false) : HeadsOutput{saved[1], saved[2]};
    const at::Tensor gy = as_matrix(gradients[0]);
    at::Tensor d_qkv;
    if (ctx->needs_input_grad(0)) {
      const at::Tensor d_out = project_back(gy, state.weight->value);
      d_qkv = heads_backward(qkv, output, d_out.view(output.out.sizes()), state.heads);
    }
    add_projection_gradient(*state.pass, *state.weight, state.bias, gy, as_matrix(output.out));
    return {d_qkv, {}, {}, state.has_residual ? gradients[0] : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& qkv, Parameter& weight, Parameter* bias, const AttentionOptions& options,
                     Pass& pass, const at::Tensor& residual) {
  const HeadsSetup heads = heads_setup(qkv, options, pass);
  const at::Tensor& bias_value = bias == nullptr ? at::Tensor() : bias->value;
  if (at::GradMode::is_enabled()) {
    return Attention::apply(qkv, weight.value, if_defined(bias_value), if_defined(residual),
                            AttentionState{&weight, bias, &pass, heads, residual.defined()});
  }
  BelowAutograd below;
  return output_projection(heads_forward(qkv.contiguous(), heads, true).out, weight.value, bias_value, residual);
}

}  // namespace orthant::nn
