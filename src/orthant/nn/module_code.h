// A user's own code, which the operation "module" runs: ordinary libtorch code, whose gradients come from autograd.
// Local.
#pragma once

#include <vector>

#include "orthant/nn/pass.h"

namespace orthant::nn {

class ModuleCode {
 public:
  virtual ~ModuleCode() = default;

  // Inputs and outputs in the order of the unit. The autograd graph made here ends at the inputs; gradients of
  // parameters are added to what lies in their buffers, which was zero before the first microbatch. torch's default
  // generators are seeded by (seed, step, unit, microbatch).
  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, const Pass& pass) = 0;

  // What a split backward leaves for its second half; a whole one ends with it. Of bodies that say so.
  virtual void backward_weights() {}
};

}  // namespace orthant::nn
