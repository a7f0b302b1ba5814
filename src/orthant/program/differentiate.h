// The operations that make a unit's gradients, in the order they can run, from its placed operations. Pure. Internal to
// this layer.
#pragma once

#include <map>

#include "orthant/program/place.h"

namespace orthant {

struct BackwardOperation {
  Operation operation;
  Part part = Part::inputs;
  int origin = -1;  // place in PlacedBody::operations of what it makes gradients of
};

struct Differentiated {
  std::vector<BackwardOperation> operations;
  std::vector<int> seeds;             // per output: the value that holds its gradient; -1: nobody reads it
  std::vector<int> gradients;         // per input; -1: none
  std::vector<Operation> in_forward;  // exchanges of gradients that forward makes
};

// Adds the gradients to `body.values`. With options.gradients_in_forward the operation head_loss becomes one that makes
// them.
Differentiated differentiate(PlacedBody& body, const ProgramOptions& options);

}  // namespace orthant
