// The optimizer's norms and updates as kernels of a CUDA device (optimizer.cu), over tables of its flat segments that
// are made once. Numbers of a step are read on the device: nothing here waits for it, and the same starts may be
// recorded and played back. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "orthant/parallel/data/master_values.h"

namespace orthant {

struct OptimizerOptions;

// A flat range of parameters with what its update reads and writes.
struct UpdatedSegment {
  MasterValues parameters;
  at::Tensor gradient;
  std::vector<at::Tensor> states;
  at::Tensor copy;  // of the parameters, for products; undefined: none, or the upper half of the parameters
  double weight_decay = 0;
};

// A flat range of gradients, and the unit whose norm it belongs to.
struct CountedSegment {
  at::Tensor gradient;
  std::int64_t unit = 0;
};

class OptimizerKernels {
 public:
  // Whether the kernels serve such a segment: float32 parameters and states on a CUDA device where kernels can be
  // compiled, gradients and copy of dtypes they know.
  static bool serves(const UpdatedSegment& segment);

  // All segments are served, alike in dtypes and on one device. `updates`, a float32 scalar on it, counts updates.
  OptimizerKernels(const OptimizerOptions& options, const std::vector<UpdatedSegment>& updated,
                   std::vector<CountedSegment> counted, std::int64_t num_units, at::Tensor updates);

  // The learning rate of the updates that follow.
  void set_lr(double lr) { lr_.fill_(lr); }
  // As Optimizer::update(), with the copies written. Gradients stay as they are.
  void update(const at::Tensor& norm, const at::Tensor& finite, const at::Tensor& loss_scale);
  // As Optimizer::squared_norms().
  at::Tensor squared_norms() const;

  // float64 [1]: becomes NaN when an update writes a parameter that is not finite.
  const at::Tensor& verdict() const { return verdict_; }

 private:
  // On the device, as the kernels read them.
  struct Table {
    at::Tensor segments;  // int64 [segments, 8]
    at::Tensor chunks;    // int32 [chunks, 2]: a segment, and which chunk of it
  };
  Table table_of(const std::vector<UpdatedSegment>& segments) const;

  const OptimizerOptions& options_;
  at::Device device_;
  int element_ = 0;  // macros of the kernels
  int master_ = 0;
  int copy_ = 0;
  Table updated_;
  Table counted_;
  at::Tensor first_chunks_;  // int32 [units + 1]: of each unit in counted_
  at::Tensor partials_;      // float64 [chunks of counted_]
  at::Tensor updates_;
  at::Tensor lr_;       // float64 [1]
  at::Tensor numbers_;  // float32 [5]
  at::Tensor verdict_;
};

}  // namespace orthant
