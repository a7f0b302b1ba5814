#include "orthant/nn/linear.h"

#include <ATen/ATen.h>

#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"
#include "orthant/nn/tensor_tokens.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearState {
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  at::DimVector leading;  // dims of x but the last
  bool has_residual;
};

// Whether the tokens of x are gathered before the product.
bool gathers(const Parameter& weight, const Pass& pass) {
  return weight.cut.column() && pass.cuts_tokens();
}

// `tokens` is as_matrix(x), or all tokens of it.
at::Tensor forward_value(const at::Tensor& tokens, const LinearState& state, const at::Tensor& residual) {
  const Parameter& weight = *state.weight;
  const Pass& pass = *state.pass;
  at::Tensor y = project_out(tokens, weight, state.bias, residual, pass);
  if (!gathers(weight, pass)) return shaped_out(y, state.leading, weight, pass);
  return at::_unsafe_view(y, {pass.rows, pass.sequence, y.size(1)});
}

// The input's gradient of a column product is a sum, which travels while the weight's gradient is computed. Where x is
// gathered again, it travels while the product before that runs.
at::Tensor column_backward(const LinearState& state, const OutGradient& gy, const at::Tensor& kept, bool needs_x) {
  Pass& pass = *state.pass;
  Parameter& weight = *state.weight;
  const bool again = kept.defined() && gathers(weight, pass) && pass.tensor->regather();
  if (again && pass.defer_weights) {
    // What the weight's gradient needs travels with it.
    pass.add_weight_gradient([&pass, &weight, bias = state.bias, gy, kept] {
      BelowAutograd below;
      Pass now{.products = pass.products};
      add_projection_gradient(now, weight, bias, gy, gather_tokens(kept, pass).get());
    });
    return needs_x ? sum_tokens(project_back(gy.all, weight.value, pass.products), weight, pass).get() : at::Tensor();
  }
  Arriving x = again ? gather_tokens(kept, pass) : Arriving(kept);
  at::Tensor partial = needs_x ? project_back(gy.all, weight.value, pass.products) : at::Tensor();
  const at::Tensor all = x.get();
  Arriving gx = needs_x ? sum_tokens(partial, weight, pass) : Arriving({});
  add_projection_gradient(pass, weight, state.bias, gy, all);
  return gx.get();
}

// Forward and backward are Local, but where the weight is cut: see Note [Cut products].
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, const std::optional<at::Tensor>& residual,
                            LinearState state) {
    BelowAutograd below;
    const at::Tensor own = as_matrix(x);
    const bool gathered = gathers(*state.weight, *state.pass);
    const at::Tensor tokens = gathered ? gather_tokens(own, *state.pass).get() : own;
    at::Tensor y = forward_value(tokens, state, residual.value_or(at::Tensor()));
    // x is kept for the weight's gradient alone.
    if (state.weight->trainable()) {
      ctx->save_for_backward({gathered && state.pass->tensor->regather() ? own : tokens});
    }
    keep(ctx, std::move(state));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<LinearState>(ctx);
    const OutGradient gy = out_gradient(gradients[0], *state.weight, *state.pass, ctx->needs_input_grad(0));
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor x = saved.empty() ? at::Tensor() : saved[0];
    const bool needs_x = ctx->needs_input_grad(0);
    at::Tensor gx;
    if (state.weight->cut.column()) {
      gx = column_backward(state, gy, x, needs_x);
    } else {
      if (needs_x) gx = project_back(gy.all, state.weight->value, state.pass->products);
      add_projection_gradient(*state.pass, *state.weight, state.bias, gy, x);
    }
    if (needs_x) {
      at::DimVector shape = state.leading;
      shape.push_back(state.weight->value.size(1));
      gx = at::_unsafe_view(gx, shape);
    }
    return {gx, {}, {}, state.has_residual ? gradients[0] : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias, Pass& pass, const at::Tensor& residual) {
  const auto leading = x.sizes().slice(0, x.dim() - 1);
  LinearState state{&weight, bias, &pass, at::DimVector(leading.begin(), leading.end()), residual.defined()};
  if (!at::GradMode::is_enabled()) {
    BelowAutograd below;
    const at::Tensor own = as_matrix(x);
    return forward_value(gathers(weight, pass) ? gather_tokens(own, pass).get() : own, state, residual);
  }
  return Linear::apply(x, weight.value, if_defined(bias == nullptr ? at::Tensor() : bias->value), if_defined(residual),
                       std::move(state));
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  BelowAutograd below;
  return project(x.contiguous(), weight, {}, {});
}

}  // namespace orthant::nn
