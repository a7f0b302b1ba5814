// The program of a unit on one rank: lists of operations for forward, backward of inputs, backward of weights and both
// at once, with exchanges between ranks as operations of their own; attention over cp and a loss over cut logits
// exchange while they compute. A pure function of what the unit's family recorded, how parameters and values lie, and
// what is recomputed: all ranks of an axis have the same lists. The runtime interprets them.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/operation.h"
#include "orthant/graph/spec.h"
#include "orthant/ops/rule.h"

namespace orthant {

struct ProgramValue {
  std::string name;
  ValuePlace at = {};
  Number number = Number::compute;
  friend bool operator==(const ProgramValue&, const ProgramValue&) = default;
};

struct ProgramParameter {
  BodyParameter use;
  ParameterAt at;
  friend bool operator==(const ProgramParameter&, const ProgramParameter&) = default;
};

// Which values of forward backward makes again instead of keeping them.
struct Remake {
  bool all = false;                          // but the unit's inputs
  std::vector<std::string> operations = {};  // what these make
  friend bool operator==(const Remake&, const Remake&) = default;
};
Remake remake_of(Recompute mode);
// The same, and what `operations` make; activations also by their kind. See remade_names() of ops/rule.h.
Remake remake_of(Recompute mode, const std::vector<std::string>& operations);

struct ProgramOptions {
  TensorSharing sharing = {};  // of a graph that is not resolved: how it would lie by its declared splits
  Remake remake = {};
  // Per input of the unit: its gradient is wanted.
  std::vector<bool> needs = {};
  // The gradient of the loss is known before the forward that makes it: that makes gradients at once.
  bool gradients_in_forward = false;
  bool training = true;  // false: no dropout, no backward
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<ProgramParameter> parameters;
  std::vector<int> inputs;     // as the unit's
  std::vector<int> outputs;    // likewise
  std::vector<int> seeds;      // per output: its gradient, given to a backward; -1: none is read
  std::vector<int> gradients;  // per input: its gradient, which a backward makes; -1: none

  std::vector<Operation> forward;
  std::vector<Operation> both;         // BW
  std::vector<Operation> input_part;   // B
  std::vector<Operation> weight_part;  // W
  std::vector<int> kept;               // values that live from forward to backward
  std::vector<int> deferred;           // from B to W

  bool has_backward() const { return !both.empty() || !gradients_made.empty(); }
  std::vector<int> gradients_made;  // gradients that forward made, where it does
  friend bool operator==(const Program&, const Program&) = default;
};

// `unit` is one of `graph`; it has a body.
Program compile_unit(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options);

}  // namespace orthant
