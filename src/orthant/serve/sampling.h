// How a next token is chosen from a model's logits: the options of a request. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace orthant {

struct SamplingParams {
  double temperature = 1;  // 0: the token with the largest logit, of equal ones the first
  int top_k = 0;           // only so many of the largest logits; 0: all
  double top_p = 1;        // only the most probable tokens whose probabilities add up to this
  double min_p = 0;        // only tokens at least this part as probable as the most probable one
  // Logits of tokens that the prompt or the answer has are divided by it where positive, multiplied where negative.
  double repetition_penalty = 1;
  std::int64_t max_tokens = 16;
  std::uint64_t seed = 0;  // equal requests with equal seeds get equal answers, alone, in a batch and on any mesh
  int logprobs = -1;       // tell the log-probability of each token, and of so many of the most probable; -1: none
  std::vector<std::int64_t> stop_tokens = {};  // an answer ends at one of these, besides the model's own end tokens
  bool ignore_end = false;                     // the model's own end tokens do not end an answer
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

inline constexpr int kMostLogprobs = 20;

// ConfigError that names the option, what was given and what may be.
void check(const SamplingParams& params);

}  // namespace orthant
