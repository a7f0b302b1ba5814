// A step of a generation as tensors: what an order says, laid out for the model's units, with places for more sequences
// where steps of one shape are to be alike. Local.
#pragma once

#include <cstdint>

#include "orthant/nn/key_cache.h"
#include "orthant/serve/step_order.h"
#include "orthant/train/step_inputs.h"

namespace orthant {

inline constexpr const char* kStepIds = "input_ids";

// What is the same in all steps of a model on a rank.
struct StepForm {
  std::int64_t most_positions = 0;
  std::int64_t shared_heads =
      0;  // query heads of a key/value head, where kernels of a device read the cache; 0: none do
};

struct StepTensors {
  StepInputs inputs;  // tensors of the host
  std::vector<nn::CachedSequence> sequences;
  nn::CachedLists lists;  // those numbers of them that are no tensors
  bool picks = false;     // some logits are wanted
  bool alike = false;     // every sequence has one new token and an answer: there may be places of nobody

  // The microbatch and the cached step of inputs that lie on the device. `recorded`: of a recording, for which the
  // sequences of one step mean nothing.
  Microbatch tokens(const StepInputs& held) const;
  nn::CachedStep cached(const StepInputs& held, const StepForm& form, bool recorded) const;
};

// `rounds`: a step of single tokens gets as many places as its bucket has.
StepTensors step_tensors(const StepOrder& order, const StepForm& form, bool rounds);

// The number of sequences that a recorded step has places for: few numbers occur.
std::int64_t bucket_of_sequences(std::int64_t sequences);

}  // namespace orthant
