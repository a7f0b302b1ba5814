#include "orthant/nn/norm.h"

#include <ATen/ATen.h>

#include "orthant/nn/columns.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/norm_pass.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct NormState : NormWeights {
  Pass* pass;
  std::optional<DropoutGrid> grid = {};

  const DropoutGrid* grid_or_null() const { return grid ? &*grid : nullptr; }
};

at::Tensor shaped(const at::Tensor& matrix, at::IntArrayRef shape) {
  return shape.size() == 2 ? matrix : at::_unsafe_view(matrix, shape);
}

// Adds the parameters' gradients now, from the pass that gives the input's, or later, from one of their own. Returns
// the input's when `input` asks for it.
NormGradients run_backward(const NormState& state, const at::Tensor& gy, const variable_list& saved, bool input,
                           const at::Tensor& residual = {}) {
  const bool learns = state.weight->trainable() || (state.bias != nullptr && state.bias->trainable());
  const bool deferred = state.pass->defer_weights;
  const NormInput kept_input = {saved[0], saved[1], state.weight->value};
  NormGradients now;
  const NormParts parts = {input, learns && !deferred};
  if (parts.input || parts.weights) {
    now = norm_backward(state.kind, gy, kept_input, parts, state.grid_or_null(), residual);
  }
  if (!learns) return now;
  const auto add = [weight = state.weight, bias = state.bias](const NormGradients& sums) {
    add_column_sums(*weight, sums.weight);
    if (bias != nullptr) add_column_sums(*bias, sums.bias);
  };
  if (deferred) {
    // Without the weights, which may be a shard again by then.
    state.pass->add_weight_gradient([add, kind = state.kind, gy, kept = NormInput{saved[0], saved[1], {}}] {
      BelowAutograd below;
      add(norm_backward(kind, gy, kept, {false, true}, nullptr));
    });
  } else {
    state.pass->add_weight_gradient([&] { add(now); });
  }
  return now;
}

// The norm of x, and x as it is. Forward and backward are Local.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& bias, const NormState& state) {
    BelowAutograd below;
    const at::Tensor matrix = as_matrix(x);
    const Normalized out = norm_forward(matrix, state);
    ctx->save_for_backward({matrix, out.statistics});
    ctx->set_materialize_grads(false);
    keep(ctx, state);
    return {shaped(out.y, x.sizes()), x};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    if (!gradients[0].defined()) return {gradients[1], {}, {}, {}};
    const at::Tensor residual = gradients[1].defined() ? as_matrix(gradients[1]) : at::Tensor();
    const NormGradients out = run_backward(kept<NormState>(ctx), as_matrix(gradients[0]), ctx->get_saved_variables(),
                                           ctx->needs_input_grad(0), residual);
    return {out.x.defined() ? shaped(out.x, gradients[0].sizes()) : at::Tensor(), {}, {}, {}};
  }
};

// The norm of the sum, and the sum. Forward and backward are Local.
struct DropoutAddNorm : torch::autograd::Function<DropoutAddNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& residual,
                               const at::Tensor& weight, const at::Tensor& bias, const NormState& state) {
    BelowAutograd below;
    const SumAndNorm result = sum_norm_forward(as_matrix(x), as_matrix(residual), state, state.grid_or_null());
    ctx->save_for_backward({result.sum, result.out.statistics});
    ctx->set_materialize_grads(false);
    keep(ctx, state);
    return {shaped(result.out.y, x.sizes()), shaped(result.sum, x.sizes())};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    const auto& state = kept<NormState>(ctx);
    if (!gradients[0].defined()) return of_sum_alone(state, gradients[1]);
    const bool needed = ctx->needs_input_grad(0) || ctx->needs_input_grad(1);
    const at::Tensor residual = gradients[1].defined() ? as_matrix(gradients[1]) : at::Tensor();
    const NormGradients out =
        run_backward(state, as_matrix(gradients[0]), ctx->get_saved_variables(), needed, residual);
    if (!needed) return {{}, {}, {}, {}, {}};
    const at::Tensor sum = shaped(out.x, gradients[0].sizes());
    return {out.dropped.defined() ? shaped(out.dropped, gradients[0].sizes()) : sum, sum, {}, {}, {}};
  }

  static variable_list of_sum_alone(const NormState& state, const at::Tensor& gradient) {
    return {gradient.defined() && state.grid ? apply_dropout(*state.grid, gradient) : gradient, gradient, {}, {}, {}};
  }
};

NormAndResidual apply_norm(const at::Tensor& x, const NormState& state) {
  if (at::GradMode::is_enabled()) {
    const variable_list out = NormFunction::apply(x, state.weight->value, if_defined(state.bias_value()), state);
    return {out[0], out[1]};
  }
  BelowAutograd below;
  return {shaped(norm_forward(as_matrix(x), state).y, x.sizes()), x};
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, Pass& pass) {
  return rms_norm_and_residual(x, weight, eps, pass).norm;
}

NormAndResidual rms_norm_and_residual(const at::Tensor& x, Parameter& weight, double eps, Pass& pass) {
  return apply_norm(x, {{Norm::rms, eps, &weight, nullptr}, &pass});
}

at::Tensor layer_norm(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps, Pass& pass) {
  return layer_norm_and_residual(x, weight, bias, eps, pass).norm;
}

NormAndResidual layer_norm_and_residual(const at::Tensor& x, Parameter& weight, Parameter& bias, double eps,
                                        Pass& pass) {
  return apply_norm(x, {{Norm::layer, eps, &weight, &bias}, &pass});
}

at::Tensor dropout_add_layer_norm(const at::Tensor& x, const at::Tensor& residual, double p, std::string_view site,
                                  Parameter& weight, Parameter& bias, double eps, Pass& pass) {
  return dropout_add_layer_norm_and_residual(x, residual, p, site, weight, bias, eps, pass).norm;
}

NormAndResidual dropout_add_layer_norm_and_residual(const at::Tensor& x, const at::Tensor& residual, double p,
                                                    std::string_view site, Parameter& weight, Parameter& bias,
                                                    double eps, Pass& pass) {
  NormState state = {{Norm::layer, eps, &weight, &bias}, &pass};
  if (drops(p, pass)) state.grid = dropout_grid(pass, site, p, x.sizes());
  if (at::GradMode::is_enabled()) {
    const variable_list out = DropoutAddNorm::apply(x, residual, weight.value, bias.value, state);
    return {out[0], out[1]};
  }
  BelowAutograd below;
  const SumAndNorm result = sum_norm_forward(as_matrix(x), as_matrix(residual), state, state.grid_or_null());
  return {shaped(result.out.y, x.sizes()), shaped(result.sum, x.sizes())};
}

}  // namespace orthant::nn
