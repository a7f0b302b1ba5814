// A unit's program with its parameters: what the executor runs forward and backward. Local, but for the exchanges that
// the program's lists name.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "orthant/nn/binding.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

using Tensors = std::vector<at::Tensor>;

// One program, every operation of it bound to code.
class BoundProgram {
 public:
  // Keeps references to parameters, tables, axis and the code of the operation "module", null where there is none.
  BoundProgram(Program program, const UnitParameters& parameters, Tables& tables, nn::TensorAxis* tensor,
               nn::ModuleCode* module = nullptr);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program& program() const { return program_; }

  // Inputs and outputs in the order of the unit's spec, and as its edges have them. The frame keeps what backward
  // reads. `seed`: the gradient of the loss, where the program makes gradients in forward.
  Tensors forward(Frame& frame, Tensors inputs, const at::Tensor& seed = {}) const;

  // `gradients`: of the outputs. To the gradients of the inputs, undefined where there are none. Part::both makes those
  // of weights, too; Part::inputs leaves them to weights().
  Tensors backward(Frame& frame, Tensors gradients, Part part) const;
  void weights(Frame& frame) const;

 private:
  struct Bound {
    Step step;
    std::vector<int> frees;
    const Operation* operation = nullptr;  // of program_
    std::int64_t parameter_elements = 0;   // that this rank has of them
  };
  using List = std::vector<Bound>;

  List bind(const std::vector<Operation>& operations, const UnitParameters& parameters, Tables& tables,
            nn::TensorAxis* tensor, nn::ModuleCode* module);
  void run(const List& list, Frame& frame) const;
  void run_recorded(const Bound& bound, Frame& frame) const;
  // Rows and tokens as the inputs have them, where the graph does not name a field of tokens. ConfigError for inputs of
  // another shape than was recorded.
  void find_sizes(nn::Pass& pass, const Tensors& inputs) const;
  // As it lies on an edge: values per token have their rows apart.
  at::Tensor on_edge(int value, const at::Tensor& matrix, const Frame& frame) const;
  // As operations have it: a matrix. Opaque ones stay as they are.
  at::Tensor as_value(int value, const at::Tensor& tensor) const;

  Program program_;
  at::ScalarType compute_;
  List forward_;
  List both_;
  List inputs_;
  List weights_;
};

}  // namespace orthant
