// What the ranks of a replica are told to compute next, and what comes back, as plain numbers that travel between
// ranks. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orthant/serve/generator.h"
#include "orthant/serve/scheduler.h"

namespace orthant {

struct StepOrder {
  bool last = false;   // the ranks are done
  bool joins = false;  // nothing to compute, but for the experts of other replicas, which compute a step
  std::vector<StepPart> parts = {};
  std::vector<SamplingParams> begun = {};  // of the parts that are their sequence's first, in their order
  std::vector<std::uint64_t> ended = {};   // sequences that no later order has
  friend bool operator==(const StepOrder&, const StepOrder&) = default;
};

std::vector<std::int64_t> to_numbers(const StepOrder& order);
StepOrder order_of(std::span<const std::int64_t> numbers);  // InternalError for numbers that are none

// How many numbers the tokens of an order come back as: the parts with an answer, in their order. `logprobs`: of each,
// as in its SamplingParams.
std::size_t num_numbers(std::span<const int> logprobs);
std::vector<double> to_numbers(std::span<const GeneratedToken> tokens, std::span<const int> logprobs);
std::vector<GeneratedToken> tokens_of(std::span<const double> numbers, std::span<const int> logprobs);

}  // namespace orthant
