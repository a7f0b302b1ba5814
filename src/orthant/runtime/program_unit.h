// A unit whose spec says what it computes: runs the programs that are compiled from it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "orthant/interpret/unit_program.h"
#include "orthant/nn/tables.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/unit.h"

namespace orthant {

class ProgramUnit : public Unit {
 public:
  // Keeps references to the parameters and the tables.
  ProgramUnit(UnitParameters parameters, Tables& tables) : parameters_(std::move(parameters)), tables_(tables) {}

  // Before anything runs. `needs`: per input, whether its gradient is wanted. Keeps a reference to the axis.
  void compile(const Remake& remake, const std::vector<bool>& needs, nn::TensorAxis* tensor);

  const BoundProgram& training() const { return *training_; }
  // Its forward takes the gradient of the loss and makes gradients.
  const BoundProgram& gradients_in_forward() const { return *in_forward_; }
  const BoundProgram& evaluating() const { return *evaluating_; }

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override;
  ProgramUnit* program() override { return this; }

 private:
  UnitParameters parameters_;
  Tables& tables_;
  std::optional<BoundProgram> training_;
  std::optional<BoundProgram> in_forward_;  // of a head that is the loss, too
  std::optional<BoundProgram> evaluating_;
};

// One unit per unit of the store's graph, in its order; null for those of other ranks. The units keep references to the
// store and the tables. InternalError for a unit whose spec has no operations.
std::vector<std::unique_ptr<Unit>> build_units(ParameterStore& parameters, Tables& tables);

}  // namespace orthant
