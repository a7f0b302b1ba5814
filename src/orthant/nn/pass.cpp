#include "orthant/nn/pass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace orthant::nn {

void add_gradient(Parameter& parameter, const at::Tensor& addend) {
  if (!parameter.trainable()) return;
  at::NoGradGuard no_grad;
  if (parameter.fresh) {
    parameter.gradient.copy_(addend);
  } else {
    parameter.gradient.add_(addend);
  }
  parameter.fresh = false;
}

}  // namespace orthant::nn
