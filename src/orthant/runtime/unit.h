// A unit that runs: the programs that are compiled from its spec, bound to its parameters and to the code of each
// operation. A unit does not know its neighbours, the schedule or the mesh.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "orthant/interpret/unit_program.h"
#include "orthant/nn/tables.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

class Unit {
 public:
  // Keeps references to the parameters and the tables. `module`: the code of a unit that runs a user's module.
  // InternalError for a unit whose spec has no operations.
  Unit(UnitParameters parameters, Tables& tables, std::unique_ptr<nn::ModuleCode> module = nullptr);

  // Before anything runs. `needs`: per input, whether its gradient is wanted. Keeps a reference to the axis.
  void compile(const Remake& remake, const std::vector<bool>& needs, nn::TensorAxis* tensor);

  const BoundProgram& training() const { return *training_; }
  // Its forward takes the gradient of the loss and makes gradients.
  const BoundProgram& gradients_in_forward() const { return *in_forward_; }
  const BoundProgram& evaluating() const { return *evaluating_; }

 private:
  UnitParameters parameters_;
  Tables& tables_;
  std::unique_ptr<nn::ModuleCode> module_;
  std::optional<BoundProgram> training_;
  std::optional<BoundProgram> in_forward_;  // of a head that is the loss, too
  std::optional<BoundProgram> evaluating_;
};

// One unit per unit of the store's graph, in its order; null for those of other ranks. The units keep references to the
// store and the tables. InternalError for a unit whose spec has no operations.
std::vector<std::unique_ptr<Unit>> build_units(ParameterStore& parameters, Tables& tables);

}  // namespace orthant
