// Products with weights, their biases and what is added to them.
#include <ATen/ATen.h>

#include "orthant/nn/binding.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/projection.h"

namespace orthant {
namespace {

at::Tensor value_of(const nn::Parameter* parameter) {
  return parameter == nullptr ? at::Tensor() : parameter->value;
}

// in x, what is added or none; parameters weight, bias or none.
Step bind_project(const Binding& b) {
  const bool adds = !b.attributes().flag("once") || b.tensor == nullptr || b.tensor->coordinate() == 0;
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
  return {{"project", bind_project},
          {"bias", bind_bias},
          {"product_back", bind_product_back},
          {"product_weight", bind_product_weight},
          {"bias_weight", bind_bias_weight}};
}

}  // namespace orthant
