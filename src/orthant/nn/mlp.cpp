#include "orthant/nn/mlp.h"

#include <ATen/ATen.h>

#include "orthant/nn/activation.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct MlpState {
  Activation kind;
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  at::DimVector leading;  // dims of x but the last
  bool has_residual;
};

at::Tensor forward_value(Activation kind, const at::Tensor& matrix, at::IntArrayRef leading, const at::Tensor& weight,
                         const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor added = residual.defined() ? as_matrix(residual) : at::Tensor();
  at::DimVector shape(leading.begin(), leading.end());
  shape.push_back(weight.size(0));
  return at::_unsafe_view(project(activate(kind, matrix), weight, bias, added), shape);
}

// The activation is computed again when the addition runs: the queue holds its input alone.
void add_gradient_later(const MlpState& state, const at::Tensor& gy, const at::Tensor& x) {
  state.pass->add_weight_gradient([kind = state.kind, weight = state.weight, bias = state.bias, gy, x] {
    BelowAutograd below;
    Pass now;
    add_projection_gradient(now, *weight, bias, gy, activate(kind, x));
  });
}

// Forward and backward are Local. Keeps x.
struct Mlp : torch::autograd::Function<Mlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                            MlpState state) {
    BelowAutograd below;
    const at::Tensor matrix = as_matrix(x);
    at::Tensor y = forward_value(state.kind, matrix, state.leading, weight, bias.value_or(at::Tensor()),
                                 residual.value_or(at::Tensor()));
    ctx->save_for_backward({matrix});
    keep(ctx, std::move(state));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<MlpState>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor gy = as_matrix(gradients[0]);
    const bool needs_x = ctx->needs_input_grad(0);
    const bool needs_activation = state.weight->trainable();
    const bool later = needs_activation && (state.pass->defer_weights || !needs_x);
    ActivationGradient result;
    if (needs_x) {
      const at::Tensor d_activation = project_back(gy, state.weight->value);
      result = activation_gradient(state.kind, x, d_activation, needs_activation && !later);
    }
    if (later) {
      add_gradient_later(state, gy, x);
    } else {
      add_projection_gradient(*state.pass, *state.weight, state.bias, gy, result.activation);
    }
    at::Tensor gx;
    if (needs_x) {
      at::DimVector shape = state.leading;
      shape.push_back(x.size(1));
      gx = at::_unsafe_view(result.d_x, shape);
    }
    return {gx, {}, {}, state.has_residual ? gradients[0] : at::Tensor(), {}};
  }
};

at::Tensor activation_linear(Activation kind, const at::Tensor& x, Parameter& weight, Parameter* bias, Pass& pass,
                             const at::Tensor& residual) {
  const at::Tensor& bias_value = bias == nullptr ? at::Tensor() : bias->value;
  const auto leading = x.sizes().slice(0, x.dim() - 1);
  if (at::GradMode::is_enabled()) {
    return Mlp::apply(
        x, weight.value, if_defined(bias_value), if_defined(residual),
        MlpState{kind, &weight, bias, &pass, at::DimVector(leading.begin(), leading.end()), residual.defined()});
  }
  BelowAutograd below;
  return forward_value(kind, as_matrix(x), leading, weight.value, bias_value, residual);
}

}  // namespace

at::Tensor swiglu_linear(const at::Tensor& gate_up, Parameter& weight, Parameter* bias, Pass& pass,
                         const at::Tensor& residual) {
  return activation_linear(Activation::swiglu, gate_up, weight, bias, pass, residual);
}

at::Tensor gelu_linear(const at::Tensor& x, Gelu kind, Parameter& weight, Parameter* bias, Pass& pass,
                       const at::Tensor& residual) {
  const Activation activation = kind == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu;
  return activation_linear(activation, x, weight, bias, pass, residual);
}

}  // namespace orthant::nn
