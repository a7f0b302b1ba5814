#include "orthant/nn/dropout.h"

#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/dropout_device.h"
#include "orthant/nn/dropout_sum.h"
#include "orthant/nn/kept.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/nn/projection.h"

namespace orthant::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Forward and backward are Local.
struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, DropoutGrid grid) {
    BelowAutograd below;
    keep(ctx, grid);
    return apply_dropout(grid, x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    return {apply_dropout(kept<DropoutGrid>(ctx), gradients[0]), {}};
  }
};

// residual + dropout(x). Forward and backward are Local.
struct DropoutAdd : torch::autograd::Function<DropoutAdd> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& residual, DropoutGrid grid) {
    BelowAutograd below;
    keep(ctx, grid);
    return dropout_sum(grid, x, residual);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    BelowAutograd below;
    return {apply_dropout(kept<DropoutGrid>(ctx), gradients[0]), gradients[0], {}};
  }
};

template <class T>
void draw_rows(const DropoutGrid& grid, const at::Tensor& factors) {
  const auto& table = kernels::kernels<kernels::DropoutKernels<T>>();
  const std::int64_t channels = factors.size(1);
  T* out = factors.mutable_data_ptr<T>();
  kernels::for_rows(factors.size(0), channels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      table.factors(out + t * channels, grid.draw, grid.index(t), channels);
    }
  });
}

}  // namespace

at::Tensor dropout_sum(const DropoutGrid& grid, const at::Tensor& x, const at::Tensor& residual) {
  if (device::has_kernels(x.device())) {
    const at::Tensor dense = x.contiguous();
    if (device::serves_dropout(dense)) return device::dropout_add(&grid, dense, residual.contiguous());
  }
  return residual + apply_dropout(grid, x);
}

at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, Pass& pass) {
  if (!drops(p, pass)) return x;
  const DropoutGrid grid = dropout_grid(pass, site, p, x.sizes());
  if (at::GradMode::is_enabled()) return Dropout::apply(x, grid);
  BelowAutograd below;
  return apply_dropout(grid, x);
}

at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, std::string_view site, Pass& pass) {
  if (!drops(p, pass)) return residual + x;
  const DropoutGrid grid = dropout_grid(pass, site, p, x.sizes());
  if (at::GradMode::is_enabled()) return DropoutAdd::apply(x, residual, grid);
  BelowAutograd below;
  return dropout_sum(grid, x, residual);
}

at::Tensor dropout_factors(const Pass& pass, std::string_view site, double p, at::IntArrayRef shape,
                           const at::TensorOptions& options, std::int64_t first_position, std::int64_t first_channel) {
  BelowAutograd below;
  if (!drops(p, pass)) return at::ones(shape, options);
  const DropoutGrid grid = dropout_grid(pass, site, p, shape, first_position, first_channel);
  const std::int64_t channels = shape.back();
  const std::int64_t tokens = c10::multiply_integers(shape.slice(0, shape.size() - 1));
  if (options.device().is_cpu()) {
    const bool wide = options.dtype() == at::kDouble;
    const at::Tensor factors = at::empty({tokens, channels}, at::dtype(wide ? at::kDouble : at::kFloat));
    kernels::with_element(factors, [&](auto element) { draw_rows<decltype(element)>(grid, factors); });
    return factors.view(shape).to(options.dtype());
  }
  return plain_dropout_factors(grid, tokens, channels, options).view(shape);
}

}  // namespace orthant::nn
