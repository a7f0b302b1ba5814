#include "orthant/nn/mlp.h"

#include <ATen/ATen.h>

#include <optional>

#include "orthant/nn/dropout_grid.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The activation and its dropout: all that is needed to compute the middle again.
struct Middle {
  Activation kind;
  std::optional<DropoutGrid> dropout;

  at::Tensor value(const at::Tensor& x) const { return dropped(activate(kind, x)); }
  at::Tensor dropped(const at::Tensor& activation) const {
    return dropout ? apply_dropout(*dropout, activation) : activation;
  }
};

struct MlpState {
  Middle middle;
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  at::DimVector leading;  // dims of x but the last
  bool has_residual;
};

at::Tensor forward_value(const Middle& middle, const at::Tensor& matrix, at::IntArrayRef leading,
                         const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& residual) {
  const at::Tensor added = residual.defined() ? as_matrix(residual) : at::Tensor();
  at::DimVector shape(leading.begin(), leading.end());
  shape.push_back(weight.size(0));
  return at::_unsafe_view(project(middle.value(matrix), weight, bias, added), shape);
}

// The activation is computed again when the addition runs: the queue holds its input alone.
void add_gradient_later(const MlpState& state, const at::Tensor& gy, const at::Tensor& x) {
  state.pass->add_weight_gradient([middle = state.middle, weight = state.weight, bias = state.bias, gy, x] {
    BelowAutograd below;
    Pass now;
    add_projection_gradient(now, *weight, bias, gy, middle.value(x));
  });
}

// Forward and backward are Local. Keeps x.
struct Mlp : torch::autograd::Function<Mlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& residual,
                            MlpState state) {
    BelowAutograd below;
    const at::Tensor matrix = as_matrix(x);
    at::Tensor y = forward_value(state.middle, matrix, state.leading, weight, bias.value_or(at::Tensor()),
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
      const at::Tensor d_activation = state.middle.dropped(project_back(gy, state.weight->value));
      result = activation_gradient(state.middle.kind, x, d_activation, needs_activation && !later);
    }
    if (later) {
      add_gradient_later(state, gy, x);
    } else {
      const at::Tensor used = result.activation.defined() ? state.middle.dropped(result.activation) : at::Tensor();
      add_projection_gradient(*state.pass, *state.weight, state.bias, gy, used);
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

}  // namespace

at::Tensor activation_linear(const at::Tensor& x, const MlpMiddle& middle, Parameter& weight, Parameter* bias,
                             Pass& pass, const at::Tensor& residual) {
  const at::Tensor& bias_value = bias == nullptr ? at::Tensor() : bias->value;
  const auto leading = x.sizes().slice(0, x.dim() - 1);
  Middle between = {middle.activation, std::nullopt};
  if (drops(middle.dropout, pass)) {
    at::DimVector shape(leading.begin(), leading.end());
    shape.push_back(activation_width(middle.activation, x.size(-1)));
    between.dropout = dropout_grid(pass, middle.site, middle.dropout, shape);
  }
  if (at::GradMode::is_enabled()) {
    return Mlp::apply(
        x, weight.value, if_defined(bias_value), if_defined(residual),
        MlpState{between, &weight, bias, &pass, at::DimVector(leading.begin(), leading.end()), residual.defined()});
  }
  BelowAutograd below;
  return forward_value(between, as_matrix(x), leading, weight.value, bias_value, residual);
}

}  // namespace orthant::nn
