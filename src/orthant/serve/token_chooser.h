// The next token of a sequence from its logits, in float64: a function of the logits, the options, what the sequence
// has so far and its place in the answer. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>

#include "orthant/serve/generator.h"
#include "orthant/serve/sampling.h"

namespace orthant {

// Of one sequence.
class TokenChooser {
 public:
  explicit TokenChooser(SamplingParams params) : params_(std::move(params)) {}

  const SamplingParams& params() const { return params_; }
  // Tokens that the sequence has: of its prompt, and of its answer so far. Any of them any number of times.
  void see(std::span<const std::int64_t> tokens);

  // The token at place `answer` of the answer, from the logits of all tokens; T float or double. It is seen then.
  // Log-probabilities where the options ask for them. DataError for logits of which none is a finite number.
  template <class T>
  GeneratedToken choose(std::span<const T> logits, std::int64_t answer);

 private:
  SamplingParams params_;
  std::unordered_set<std::int64_t> seen_;  // where they matter
};

}  // namespace orthant
