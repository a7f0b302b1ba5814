// The optimizer: one fused update per decay class over what a rank owns of all flat buffers. Its state lies in flat
// buffers of the same layout and ranges, so that it is sharded, saved and read like the parameters. When the store
// keeps the optimizer's copy on the host, state and update are there too, and each gradient travels there on a stream
// of its own as soon as it is the sum over all ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/train/optimizer_kernels.h"

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

// Tensors of the parameters' size that it keeps: 2 for AdamW, 1 for SGD with momentum.
int num_states(const OptimizerOptions& options);

class Optimizer {
 public:
  // State for every trainable buffer of the store, in memory of `make`, which is on the device of the optimizer's
  // copies. Keeps a reference to the store.
  Optimizer(ParameterStore& store, const OptimizerOptions& options, const MakeBuffer& make);

  // The learning rate of the updates that follow. On a device it is a number there, apart from update(), so that the
  // work of an update may be recorded once and played back.
  void set_lr(double lr);

  // One update. `norm` is the global gradient norm, a float64 scalar on the device: gradients are scaled down to the
  // clip (where they lie, or in a copy of another dtype; kernels of a CUDA device leave them as they are).
  // `loss_scale`, when defined, is a float64 scalar that gradients, but not the norm, are too large by. Nothing changes
  // when `finite`, a bool scalar on the device, is false. Reads the device only when the update runs on the host.
  // Collective over fsdp where full values follow.
  void update(const at::Tensor& norm, const at::Tensor& finite, const at::Tensor& loss_scale = {});

  // Where updates are kernels that look at what they write: float64 [1] on the device, 0, or NaN since a parameter that
  // is not finite was written. Undefined otherwise. May be written to after a look at all parameters.
  at::Tensor parameters_verdict() const { return kernels_ ? kernels_->verdict() : at::Tensor(); }

  // Whether an update reads all its numbers on the device and is made there.
  bool updates_by_kernels() const { return kernels_ != nullptr; }

  // Per-unit float64 slots: the sum of squares of the gradient elements this rank answers for, [units], on the device.
  // Summed over all ranks every element counts once: those that hold the same elements share them. Local.
  at::Tensor squared_norms() const;

  // Names of the state tensors ("exp_avg", "exp_avg_sq"; "momentum"), and state `i` of buffer `b`: its owned range.
  const std::vector<std::string>& state_names() const { return names_; }
  const at::Tensor& state(std::size_t i, std::size_t buffer) const { return states_[i][buffer]; }

  // Of all states.
  std::int64_t state_bytes() const;

  // Updates made; what the bias correction counts. Reading it waits for the device.
  std::int64_t num_updates() const;
  void set_num_updates(std::int64_t updates);

 private:
  struct DecayClass {
    double weight_decay = 0;
    std::vector<MasterValues> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<std::vector<at::Tensor>> states;
    std::vector<at::Tensor> copies;  // FlatParameters::published()
  };

  struct FusedTensors {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<std::vector<at::Tensor>> states;
  };

  void make_kernels(const std::vector<std::int64_t>& units);
  void fetch(int buffer);
  void wait_for_fetched();
  void add_segment(DecayClass& target, std::size_t buffer, const at::Tensor& gradient, Range range);
  void update_class(DecayClass& group, const at::Tensor& scale, const at::Tensor& skip) const;
  void update_tensors(const FusedTensors& tensors, double weight_decay, const at::Tensor& scale,
                      const at::Tensor& skip) const;

  ParameterStore& store_;
  OptimizerOptions options_;
  std::vector<at::Tensor> flat_gradients_;  // owned, of all trainable buffers, where the update runs
  std::map<int, std::size_t> fetched_;      // buffer -> its place there, of gradients that a step brings to the host
  std::optional<c10::Stream> copies_;       // where they travel
  std::vector<at::Tensor> counted_;         // what squared_norms() counts
  at::Tensor slots_;                        // the unit of each of them
  std::vector<std::string> names_;
  std::vector<std::vector<at::Tensor>> states_;  // [state][buffer]; undefined for frozen buffers
  at::Tensor count_;                             // float32 scalar: updates made
  std::vector<DecayClass> classes_;
  double lr_ = 0;
  std::unique_ptr<OptimizerKernels> kernels_;  // null: fused operations of ATen
};

}  // namespace orthant
