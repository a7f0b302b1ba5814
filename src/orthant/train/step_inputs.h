// What a step reads and the one before did not: rows of the batch and a few numbers. They come to a device in one copy,
// into memory that may serve one step or all steps of a shape. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/nn/staged_copy.h"
#include "orthant/runtime/executor.h"

namespace orthant {

struct StepInputs {
  std::vector<Microbatch> microbatches;
  at::Tensor loss_factors;  // float64 [losses], in the graph's order: coefficient / global sum of target weights
  at::Tensor told;          // float64 [3 + ranks]: what this rank tells all others, see Trainer::summed()
};

// Equal for inputs whose tensors have the same names, shapes, dtypes and places in the global batch.
std::string shape_of(const StepInputs& inputs);

// Rows times length of the largest field of ids, [rows, sequence], of any microbatch; of fields without a sequence
// rows alone.
std::int64_t most_tokens(const StepInputs& inputs);

class InputMemory {
 public:
  // For inputs of that shape. On the CPU, where nothing is copied, for these alone.
  InputMemory(const StepInputs& inputs, at::Device device);

  // Inputs of the same shape; tensors are on the host or on the device. A device is not waited for. `copies`: by which
  // bytes come to a device; null: on the current stream.
  void fill(const StepInputs& inputs, nn::StagedCopy* copies = nullptr);
  const StepInputs& held() const { return held_; }

 private:
  at::Device device_;
  at::Tensor bytes_;  // uint8 on the device, what comes from the host
  StepInputs held_;   // views of it
};

}  // namespace orthant
