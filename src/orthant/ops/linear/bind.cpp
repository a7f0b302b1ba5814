// Products with weights, their biases and what is added to them.
#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/few_rows_device.h"
#include "orthant/ops/linear/float8.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/ops/norm/norm_pass.h"
#include "orthant/ops/rule.h"

namespace orthant {
namespace {

at::Tensor value_of(const nn::Parameter* parameter) {
  return parameter == nullptr ? at::Tensor() : parameter->value;
}

// in x; out the same in e4m3, scales of its rows.
Step bind_round_float8(const Binding& b) {
  return [x = b.in(0), y = b.out(0), scales = b.out(1)](Frame& frame) {
    nn::Float8Matrix rounded = nn::round_float8(frame[x]);
    frame[y] = std::move(rounded.values);
    frame[scales] = std::move(rounded.scales);
  };
}

// in x in e4m3, what is added or none, scales of x.
Step bind_float8_project(const Binding& b, bool adds) {
  return [x = b.in(0), added = b.in(1), scales = b.in(2), y = b.out(0), weight = b.parameter(0), bias = b.parameter(1),
          adds](Frame& frame) {
    frame[y] =
        nn::float8_product({frame[x], frame[scales]}, nn::round_float8(weight->value), weight->value.scalar_type(),
                           adds ? value_of(bias) : at::Tensor(), adds ? frame.get(added) : at::Tensor());
  };
}

// The products of a generation: of a few rows by the kernel that reads the weight once, with the norm in front of it
// and the gate behind it. in x, what is added or none; parameters weight, bias or none, weight of the norm or none.
Step bind_generation_project(const Binding& b, bool adds) {
  const bool norms = b.attributes().find(kNormEps) != nullptr;
  const nn::NormWeights norm{nn::Norm::rms, norms ? b.attributes().number(kNormEps) : 0, b.parameter(2), nullptr};
  return [x = b.in(0), added = b.in(1), y = b.out(0), weight = b.parameter(0), bias = b.parameter(1), adds, norm,
          gated = b.attributes().flag(kGated)](Frame& frame) {
    const bool norms = norm.weight != nullptr;
    nn::device::FewRowsProduct product{.x = frame[x],
                                       .weight = weight->value,
                                       .bias = adds ? value_of(bias) : at::Tensor(),
                                       .added = adds ? frame.get(added) : at::Tensor(),
                                       .norm_weight = norms ? norm.weight->value : at::Tensor(),
                                       .eps = norm.eps,
                                       .gated = gated};
    if (norms && !nn::device::serves_few_rows(product)) {
      product.x = nn::norm_forward(product.x, norm).y;
      product.norm_weight.reset();
    }
    if (nn::device::serves_few_rows(product)) {
      frame[y] = nn::device::few_rows(product);
      return;
    }
    frame[y] = nn::project(product.x, product.weight, product.bias, product.added, frame.pass.products);
    if (gated) frame[y] = nn::activate(nn::ActivationKind::swiglu, frame[y]);
  };
}

// in x, what is added or none; parameters weight, bias or none.
Step bind_project(const Binding& b) {
  const bool adds = !b.attributes().flag("once") || b.tensor == nullptr || b.tensor->coordinate() == 0;
  if (b.attributes().flag(kFloat8)) return bind_float8_project(b, adds);
  if (b.attributes().flag(kGenerates)) return bind_generation_project(b, adds);
  return
      [x = b.in(0), added = b.in(1), y = b.out(0), weight = b.parameter(0), bias = b.parameter(1), adds](Frame& frame) {
        frame[y] = nn::project(frame[x], weight->value, adds ? value_of(bias) : at::Tensor(),
                               adds ? frame.get(added) : at::Tensor(), frame.pass.products);
      };
}

// Behind a sum over ranks, whose result nobody else reads.
Step bind_bias(const Binding& b) {
  return [x = b.in(0), y = b.out(0), bias = b.parameter(0), over = b.owns_input()](Frame& frame) {
    frame[y] = over ? frame[x].add_(bias->value) : frame[x] + bias->value;
  };
}

Step bind_product_back(const Binding& b) {
  if (b.attributes().flag(kFloat8)) {
    return [gy = b.in(0), scales = b.in(1), gx = b.out(0), weight = b.parameter(0)](Frame& frame) {
      frame[gx] = nn::float8_product({frame[gy], frame[scales]}, nn::round_float8_turned(weight->value),
                                     weight->value.scalar_type(), {}, {});
    };
  }
  return [gy = b.in(0), gx = b.out(0), weight = b.parameter(0)](Frame& frame) {
    frame[gx] = nn::project_back(frame[gy], weight->value, frame.pass.products);
  };
}

Step bind_product_weight(const Binding& b) {
  return [gy = b.in(0), x = b.in(1), weight = b.parameter(0)](Frame& frame) {
    nn::add_product_gradient(*weight, frame[gy], frame[x], frame.pass.products);
  };
}

Step bind_bias_weight(const Binding& b) {
  return [gy = b.in(0), bias = b.parameter(0)](Frame& frame) { nn::add_column_sums(*bias, frame[gy]); };
}

}  // namespace

std::vector<NamedBinder> linear_binders() {
  return {
      {"project", bind_project},           {"round_float8", bind_round_float8},     {"bias", bind_bias},
      {"product_back", bind_product_back}, {"product_weight", bind_product_weight}, {"bias_weight", bind_bias_weight}};
}

}  // namespace orthant
