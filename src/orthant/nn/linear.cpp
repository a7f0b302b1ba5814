#include "orthant/nn/linear.h"

#include <ATen/ATen.h>

#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor forward_value(const at::Tensor& matrix, at::IntArrayRef leading, const at::Tensor& weight,
                         const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor added = residual.defined() ? as_matrix(residual) : at::Tensor();
  at::Tensor y = project(matrix, weight, bias, added);
  if (leading.size() == 1) return y;
  at::DimVector shape(leading.begin(), leading.end());
  shape.push_back(weight.size(0));
  return at::_unsafe_view(y, shape);
}

struct LinearState {
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  at::DimVector leading;  // dims of x but the last
  bool has_residual;
};

// Forward and backward are Local.
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                            LinearState state) {
    BelowAutograd below;
    const at::Tensor matrix = as_matrix(x);
    at::Tensor y =
        forward_value(matrix, state.leading, weight, bias.value_or(at::Tensor()), residual.value_or(at::Tensor()));
    // x is kept for the weight's gradient alone.
    if (state.weight->trainable()) ctx->save_for_backward({matrix});
    keep(ctx, std::move(state));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<LinearState>(ctx);
    const at::Tensor gy = as_matrix(gradients[0]);
    at::Tensor gx;
    if (ctx->needs_input_grad(0)) {
      at::DimVector shape = state.leading;
      shape.push_back(state.weight->value.size(1));
      gx = at::_unsafe_view(project_back(gy, state.weight->value), shape);
    }
    const variable_list saved = ctx->get_saved_variables();
    add_projection_gradient(*state.pass, *state.weight, state.bias, gy, saved.empty() ? at::Tensor() : saved[0]);
    return {gx, {}, {}, state.has_residual ? gradients[0] : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias, Pass& pass, const at::Tensor& residual) {
  const at::Tensor& bias_value = bias == nullptr ? at::Tensor() : bias->value;
  const auto leading = x.sizes().slice(0, x.dim() - 1);
  if (!at::GradMode::is_enabled()) {
    BelowAutograd below;
    return forward_value(as_matrix(x), leading, weight.value, bias_value, residual);
  }
  return Linear::apply(
      x, weight.value, if_defined(bias_value), if_defined(residual),
      LinearState{&weight, bias, &pass, at::DimVector(leading.begin(), leading.end()), residual.defined()});
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  BelowAutograd below;
  return project(x.contiguous(), weight, {}, {});
}

}  // namespace orthant::nn
