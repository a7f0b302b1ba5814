// What lives for one call of the executor: values, gradients and unfinished runs of every microbatch. Internal to this
// layer.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "orthant/runtime/executor.h"
#include "orthant/schedule/forward_gradients.h"

namespace orthant {

struct Executor::UnitRun {
  Frame frame;
  const BoundProgram* program = nullptr;  // by which it runs
  bool reached = true;                    // by a gradient
  std::vector<at::TensorOptions> output_options;
};

struct Executor::Step {
  struct Slot {
    at::Tensor tensor;
    int readers_left = 0;
  };
  struct Row {  // one microbatch
    std::vector<Slot> values;
    std::vector<int> sends;  // per value: to how many ranks it goes
    std::vector<std::unique_ptr<UnitRun>> runs;
    std::map<std::pair<int, int>, at::Tensor> gradients;  // (value, consumer)
    std::map<int, at::Tensor> losses;                     // by value, float64
  };

  const std::vector<Microbatch>& microbatches;
  const StepFacts& facts;
  std::vector<Row> rows;
  ForwardGradients gradients_in_forward = {};  // of train()
};

// As it lies on an edge, see Note [Order of sums]. Declared values are contiguous; others may keep their strides.
at::Tensor on_edge(const at::Tensor& tensor, const ValueSpec& value);

}  // namespace orthant
