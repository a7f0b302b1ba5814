// The optimizer: one fused update per decay class over all flat buffers of a rank. Its state lies in flat buffers of
// the same layout, so that it is sharded, saved and read like the parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

struct OptimizerOptions {
  std::string kind = "adamw";  // or sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // not on biases and norms
  double momentum = 0;         // sgd
  double clip = 0;             // largest global gradient norm; 0: none
};

class Optimizer {
 public:
  // State for every trainable buffer of the store. Keeps a reference to it.
  Optimizer(ParameterStore& store, const OptimizerOptions& options, const MakeBuffer& make);

  // One update. `norm` is the global gradient norm, a float64 scalar on the device: gradients are scaled down to the
  // clip, in place. Nothing changes when `finite`, a bool scalar on the device, is false. Does not read the device.
  void update(double lr, const at::Tensor& norm, const at::Tensor& finite);

  // Per-unit float64 slots: the sum of squares of each unit's gradient elements, [units], on the device. Local.
  at::Tensor squared_norms() const;

  // Names of the state tensors ("exp_avg", "exp_avg_sq"; "momentum"), and state `i` of buffer `b`, flat.
  const std::vector<std::string>& state_names() const { return names_; }
  const at::Tensor& state(std::size_t i, std::size_t buffer) const { return states_[i][buffer]; }

  // Updates made; what the bias correction counts. Reading it waits for the device.
  std::int64_t num_updates() const;
  void set_num_updates(std::int64_t updates);

 private:
  struct DecayClass {
    double weight_decay = 0;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<std::vector<at::Tensor>> states;
    std::vector<at::Tensor> counts;
  };

  void add_segment(DecayClass& target, std::size_t buffer, std::int64_t begin, std::int64_t end);
  void update_class(DecayClass& group, double lr, const at::Tensor& scale, const at::Tensor& skip);

  ParameterStore& store_;
  OptimizerOptions options_;
  std::vector<at::Tensor> flat_gradients_;  // of all trainable buffers
  at::Tensor slots_;                        // the unit of each of them
  std::vector<std::string> names_;
  std::vector<std::vector<at::Tensor>> states_;  // [state][buffer]; undefined for frozen buffers
  at::Tensor count_;                             // float32 scalar: updates made
  std::vector<DecayClass> classes_;
};

}  // namespace orthant
