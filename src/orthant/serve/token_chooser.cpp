#include "orthant/serve/token_chooser.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace {

constexpr std::size_t at(std::int64_t token) {
  return static_cast<std::size_t>(token);
}

struct Candidate {
  std::int64_t token;
  double weight;  // exp(score - highest score)
};

// The more probable ones first, of equal ones the first.
bool before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

template <class T>
std::int64_t first_largest(std::span<const T> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best] || std::isnan(values[best])) best = i;
  }
  if (!std::isfinite(values[best])) refuse_logits();
  return static_cast<std::int64_t>(best);
}

double weight_of(std::span<const Candidate> candidates) {
  double sum = 0;
  for (const auto& candidate : candidates) sum += candidate.weight;
  return sum;
}

void keep_first(std::vector<Candidate>& candidates, std::size_t count) {
  if (count >= candidates.size()) return;
  std::ranges::nth_element(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(count), before);
  candidates.resize(count);
}

// The most probable ones whose probabilities add up to `top_p`; `all` being the weight of all there are. False: those
// that are here do not.
bool keep_most(std::vector<Candidate>& candidates, double top_p, std::optional<double> all) {
  std::ranges::sort(candidates, before);
  const double wanted = top_p * all.value_or(weight_of(candidates));
  double sum = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += candidates[i].weight;
    if (sum < wanted) continue;
    candidates.resize(i + 1);
    return true;
  }
  return !all;
}

// Of candidates that have a weight.
std::optional<std::int64_t> draw_among(std::vector<Candidate> candidates, const SamplingParams& params,
                                       std::int64_t answer, std::optional<double> all_weights) {
  if (params.top_k > 0) keep_first(candidates, at(params.top_k));
  if (params.top_p < 1 && !keep_most(candidates, params.top_p, all_weights)) return std::nullopt;
  // The most probable one has weight 1 and stays.
  if (params.min_p > 0) std::erase_if(candidates, [&](const Candidate& one) { return one.weight < params.min_p; });
  std::ranges::sort(candidates, {}, &Candidate::token);
  const double drawn = TokenChooser::drawn(params, answer) * weight_of(candidates);
  double sum = 0;
  for (const auto& candidate : candidates) {
    sum += candidate.weight;
    if (drawn < sum) return candidate.token;
  }
  return candidates.back().token;
}

std::int64_t draw(const std::vector<double>& scores, const SamplingParams& params, std::int64_t answer) {
  const double highest = scores[at(first_largest(std::span<const double>(scores)))];
  std::vector<Candidate> candidates;
  candidates.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp((scores[i] - highest) / params.temperature);
    if (weight > 0) candidates.push_back({static_cast<std::int64_t>(i), weight});
  }
  return *draw_among(std::move(candidates), params, answer, {});
}

// Of the model's own distribution.
template <class T>
void add_logprobs(GeneratedToken& made, std::span<const T> logits, int count) {
  const double highest = logits[at(first_largest(logits))];
  double sum = 0;
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(static_cast<double>(logits[i]) - highest);
    sum += weight;
    candidates.push_back({static_cast<std::int64_t>(i), static_cast<double>(logits[i])});
  }
  const double lse = highest + std::log(sum);
  made.logprob = static_cast<double>(logits[at(made.token)]) - lse;
  keep_first(candidates, at(count));
  std::ranges::sort(candidates, before);
  for (const auto& candidate : candidates) made.most.push_back({candidate.token, candidate.weight - lse});
}

}  // namespace

void refuse_logits() {
  throw DataError("the model's logits have no largest number: its weights or its arithmetic are damaged",
                  {.remedy = "compute in float32, or check the model's weights"});
}

double TokenChooser::drawn(const SamplingParams& params, std::int64_t answer) {
  return RandomStream(params.seed, "generate").uniform(static_cast<std::uint64_t>(answer));
}

std::optional<std::int64_t> TokenChooser::choose_among(const std::vector<TokenScore>& best,
                                                       const SamplingParams& params, std::int64_t answer,
                                                       std::optional<double> all_weights) {
  double highest = -std::numeric_limits<double>::infinity();
  for (const auto& [token, score] : best) highest = std::max(highest, std::isnan(score) ? highest : score);
  std::vector<Candidate> candidates;
  for (const auto& [token, score] : best) {
    const double weight = std::exp((score - highest) / params.temperature);
    if (weight > 0) candidates.push_back({token, weight});
  }
  return draw_among(std::move(candidates), params, answer, all_weights);
}

void TokenChooser::see(std::span<const std::int64_t> tokens) {
  if (params_.repetition_penalty != 1) seen_.insert(tokens.begin(), tokens.end());
}

template <class T>
GeneratedToken TokenChooser::choose(std::span<const T> logits, std::int64_t answer) {
  GeneratedToken made;
  if (params_.temperature == 0 && params_.repetition_penalty == 1) {
    made.token = first_largest(logits);
  } else {
    std::vector<double> scores(logits.begin(), logits.end());
    for (const auto token : seen_) {
      double& score = scores[at(token)];
      score = score > 0 ? score / params_.repetition_penalty : score * params_.repetition_penalty;
    }
    made.token =
        params_.temperature == 0 ? first_largest(std::span<const double>(scores)) : draw(scores, params_, answer);
  }
  if (params_.logprobs >= 0) add_logprobs(made, logits, params_.logprobs);
  see({&made.token, 1});
  return made;
}

template GeneratedToken TokenChooser::choose(std::span<const float> logits, std::int64_t answer);
template GeneratedToken TokenChooser::choose(std::span<const double> logits, std::int64_t answer);

}  // namespace orthant
