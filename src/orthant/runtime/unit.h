// A unit that runs: the code behind a UnitSpec. It has programs (program_unit.h), or it is a user's own module, whose
// forward is ordinary libtorch code; the executor gives that detached inputs, so its autograd graph ends at its own
// borders. A unit does not know its neighbours, the schedule or the mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "orthant/nn/pass.h"

namespace orthant {

using Tensors = std::vector<at::Tensor>;

class ProgramUnit;

class Unit {
 public:
  virtual ~Unit() = default;

  // Inputs and outputs in the order of the spec. `pass` outlives the autograd graph made here. Local, but where the
  // pass has a tensor axis: then Collective over tp, as is its backward.
  virtual Tensors forward(const Tensors& inputs, nn::Pass& pass) = 0;

  // Gradients of parameters come from autograd's own accumulation, which adds to what lies there: buffers must be zero
  // before the first microbatch, and a split backward produces them with the input gradients.
  virtual bool accumulates_by_autograd() const { return false; }

  // What a split backward leaves for its second half; a whole one ends with it. For units that run by forward().
  virtual void backward_weights() {}

  // Draws from torch's default generators: the executor seeds them per (seed, step, unit, microbatch).
  virtual bool draws_random_numbers() const { return false; }

  // A unit that runs by programs, and not by forward() and autograd.
  virtual ProgramUnit* program() { return nullptr; }
};

}  // namespace orthant
