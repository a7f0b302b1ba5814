// Puts the operations of forward and backward into the lists that run: which values are kept, which are made again and
// where, when exchanges start and are waited for, what is freed. Pure. Internal to this layer.
#pragma once

#include <set>

#include "orthant/program/differentiate.h"

namespace orthant {

// Fills forward, both, input_part, weight_part, kept and deferred of a program whose values are there. Exchanges are
// operations "start" and "wait" in them.
void make_lists(Program& program, const PlacedBody& body, const Differentiated& backward,
                const ProgramOptions& options);

// What is there when each list is done, by the lists as they are.
struct LiveValues {
  std::set<int> after_forward;  // kept values and outputs
  std::set<int> deferred;       // what W reads and B or forward has made
  std::set<int> after_inputs;   // deferred values and gradients of inputs
  std::set<int> gradients;      // of inputs
};
LiveValues live_values(const Program& program);

// Frees every value after its last use in each list, and says which values are deferred.
void add_frees(Program& program);

}  // namespace orthant
