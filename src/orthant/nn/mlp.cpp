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
  ActivationKind kind;
  std::optional<DropoutGrid> dropout;

  const DropoutGrid* grid() const { return dropout ? &*dropout : nullptr; }
  at::Tensor value(const at::Tensor& x) const { return activate(kind, x, grid()); }
};

struct MlpState {
  Middle middle;
  Parameter* weight;
  Parameter* bias;
  Pass* pass;
  at::DimVector leading;  // dims of x but the last
  bool has_residual;
};

at::Tensor forward_value(const MlpState& state, const at::Tensor& matrix, const at::Tensor& residual) {
  const at::Tensor y = project_out(state.middle.value(matrix), *state.weight, state.bias, residual, *state.pass);
  return shaped_out(y, state.leading, *state.weight, *state.pass);
}

// The activation is computed again when the addition runs: the queue holds its input alone.
void add_gradient_later(const MlpState& state, const OutGradient& gy, const at::Tensor& x) {
  state.pass->add_weight_gradient(
      [middle = state.middle, weight = state.weight, bias = state.bias, gy, x, products = state.pass->products] {
        BelowAutograd below;
        Pass now{.products = products};
        add_projection_gradient(now, *weight, bias, gy, middle.value(x));
      });
}

// Where the weight is cut forward sums over tp, and backward gathers where tokens are cut; else both are Local. Keeps
// x.
struct Mlp : torch::autograd::Function<Mlp> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& /*weight*/,
                            const std::optional<at::Tensor>& /*bias*/, const std::optional<at::Tensor>& residual,
                            MlpState state) {
    BelowAutograd below;
    const at::Tensor matrix = as_matrix(x);
    at::Tensor y = forward_value(state, matrix, residual.value_or(at::Tensor()));
    ctx->save_for_backward({matrix});
    keep(ctx, std::move(state));
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<MlpState>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    const OutGradient gy = out_gradient(gradients[0], *state.weight, *state.pass, ctx->needs_input_grad(0));
    const bool needs_x = ctx->needs_input_grad(0);
    const bool needs_activation = state.weight->trainable();
    const bool later = needs_activation && (state.pass->defer_weights || !needs_x);
    ActivationGradient result;
    if (needs_x) {
      result =
          activation_gradient(state.middle.kind, x, project_back(gy.all, state.weight->value, state.pass->products),
                              needs_activation && !later, state.middle.grid());
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

}  // namespace

at::Tensor activation_linear(const at::Tensor& x, const MlpMiddle& middle, Parameter& weight, Parameter* bias,
                             Pass& pass, const at::Tensor& residual) {
  const auto leading = x.sizes().slice(0, x.dim() - 1);
  MlpState state{{middle.activation, std::nullopt},
                 &weight,
                 bias,
                 &pass,
                 at::DimVector(leading.begin(), leading.end()),
                 residual.defined()};
  if (drops(middle.dropout, pass)) {
    at::DimVector shape(leading.begin(), leading.end());
    shape.push_back(activation_width(middle.activation, x.size(-1)));
    const std::int64_t first_channel = weight.cut.row() ? weight.cut.first : 0;
    state.middle.dropout = dropout_grid(pass, middle.site, middle.dropout, shape, /*first_position=*/0, first_channel);
  }
  if (at::GradMode::is_enabled()) {
    return Mlp::apply(x, weight.value, if_defined(bias == nullptr ? at::Tensor() : bias->value), if_defined(residual),
                      std::move(state));
  }
  BelowAutograd below;
  return forward_value(state, as_matrix(x), residual);
}

}  // namespace orthant::nn
