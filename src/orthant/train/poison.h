// Faults put into a training on purpose: one element of a loss, an output, a gradient or a parameter becomes NaN or
// infinite on one rank in one step, at the place where it would arise, or one of its bits is flipped. To show that a
// step that is not finite changes no weight and is explained (train/step_watch.h), and that ranks which differ are
// found (train/replica_watch.h). Read from the key train.poison; a run without faults has none of this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_policy.h"
#include "orthant/mesh/mesh.h"
#include "orthant/runtime/unit.h"

namespace orthant {

class ParameterStore;

struct Poison {
  enum class Kind {
    loss,          // the value of a loss unit
    activation,    // the unit's first output of numbers, after a forward
    gradient,      // of one unit's use of a parameter, before any sum
    parameter,     // the optimizer's copy, before the step; what is gathered from it follows
    gradient_sum,  // what the optimizer reads, after all sums
  };
  Kind kind = Kind::activation;
  int rank = 0;
  std::string unit;  // name or number; a loss without one: the first that the rank runs
  std::int64_t step = 1;
  double value = 0;       // NaN or infinity
  bool flips = false;     // instead: the highest bit of the mantissa is flipped
  std::string parameter;  // full name; empty: the unit's first that the rank has elements of
  int microbatch = 0;     // of a loss or an activation
};

// "activation:rank=3,unit=layers.2,step=5,value=nan", perhaps with parameter=NAME and microbatch=M; value=flip of a
// parameter or a gradient_sum. ConfigError with the rule.
Poison parse_poison(std::string_view text);

// Where it goes.
struct LocatedPoison {
  Poison what;
  int unit = 0;
  int buffer = -1;          // of the rank's buffers, for gradients and parameters
  std::int64_t offset = 0;  // of the element in it
};

// Alike on every rank. ConfigError for a rank, unit or parameter that is not there, and for a rank that does not run
// the unit or has none of the parameter. `unit_pp_coordinates`: the pp coordinate of each unit; `policy` is effective.
std::vector<LocatedPoison> locate_poison(const std::vector<Poison>& poison, const GraphSpec& graph, const Mesh& mesh,
                                         const std::vector<int>& unit_pp_coordinates, const DataPolicy& policy,
                                         int microbatches);

// Does it, each once. A step that is run again meets the next one of its kind.
class Poisoner {
 public:
  Poisoner(std::vector<LocatedPoison> located, int rank) : located_(std::move(located)), rank_(rank) {}

  // Whether some rank's parameters are damaged in that step.
  bool damages_parameters(std::int64_t step) const;
  // Whether there is anything to do in that step.
  bool acts_in(std::int64_t step) const;
  // Of the step that begins. Collective over fsdp when it damages a parameter, on whatever rank.
  void begin_step(std::int64_t step, ParameterStore& store);
  void outputs(int unit, int microbatch, Tensors& outputs);
  void gradient(std::size_t buffer, int unit, const at::Tensor& gradient);
  // When all gradients are summed: the first that is due.
  void gradient_sums(const ParameterStore& store);

 private:
  std::vector<LocatedPoison> located_;
  int rank_;
  std::vector<LocatedPoison> due_;  // in this step on this rank
};

}  // namespace orthant
