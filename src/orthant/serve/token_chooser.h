// The next token of a sequence from its logits, in float64: a function of the logits, the options, what the sequence
// has so far and its place in the answer. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "orthant/serve/generator.h"
#include "orthant/serve/sampling.h"

namespace orthant {

struct TokenScore {
  std::int64_t token = 0;
  double score = 0;
};

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

  // The same token, without a penalty, from the most probable ones alone, in any order: as many as top_k; or, with
  // top_p, some, and `all_weights`, the sum of exp((logit - highest) / temperature) of all tokens. Nothing where top_p
  // asks for more of them.
  static std::optional<std::int64_t> choose_among(const std::vector<TokenScore>& best, const SamplingParams& params,
                                                  std::int64_t answer, std::optional<double> all_weights = {});
  // The random number of a token at place `answer`, in [0, 1).
  static double drawn(const SamplingParams& params, std::int64_t answer);

 private:
  SamplingParams params_;
  std::unordered_set<std::int64_t> seen_;  // where they matter
};

// Throws DataError: the model's logits have no largest number.
[[noreturn]] void refuse_logits();

}  // namespace orthant
