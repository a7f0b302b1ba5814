#include "orthant/serve/token_chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "orthant/base/error.h"

namespace orthant {
namespace token_chooser_test {

using Logits = std::vector<double>;

// How often each token is drawn over many places of an answer.
std::map<std::int64_t, int> counts(const Logits& logits, const SamplingParams& params, int draws = 20000) {
  TokenChooser chooser(params);
  std::map<std::int64_t, int> found;
  for (int i = 0; i < draws; ++i) ++found[chooser.choose(std::span<const double>(logits), i).token];
  return found;
}

TEST(TokenChooser, TakesTheFirstOfTheLargestWhenGreedy) {
  const std::vector<float> logits = {1, 3, 2, 3};
  TokenChooser chooser({.temperature = 0});
  EXPECT_EQ(chooser.choose(std::span<const float>(logits), 0).token, 1);
}

TEST(TokenChooser, DrawsAsProbableAsTheModelSays) {
  const Logits logits = {std::log(0.5), std::log(0.3), std::log(0.2)};
  const auto found = counts(logits, {.seed = 7});
  EXPECT_NEAR(found.at(0), 10000, 250);
  EXPECT_NEAR(found.at(1), 6000, 250);
  EXPECT_NEAR(found.at(2), 4000, 250);
  const auto cold = counts(logits, {.temperature = 0.5, .seed = 7});
  EXPECT_NEAR(cold.at(0), 20000 * 25.0 / 38, 250) << "probabilities to the power of 1 / temperature";
}

TEST(TokenChooser, DrawsByFilters) {
  const Logits logits = {std::log(0.1), std::log(0.4), std::log(0.3), std::log(0.2)};
  EXPECT_EQ(counts(logits, {.top_k = 2}).size(), 2U);
  EXPECT_NEAR(counts(logits, {.top_k = 2}).at(1), 20000 * 4.0 / 7, 300);
  EXPECT_EQ(counts(logits, {.top_p = 0.69}).size(), 2U);
  EXPECT_EQ(counts(logits, {.top_p = 0.71}).size(), 3U);
  EXPECT_EQ(counts(logits, {.min_p = 0.6}).size(), 2U);
  EXPECT_EQ(counts(logits, {.top_p = 1e-9}), (std::map<std::int64_t, int>{{1, 20000}})) << "one stays";
  EXPECT_EQ(counts({0, 0, 0}, {.top_k = 1}), (std::map<std::int64_t, int>{{0, 20000}})) << "of equal ones the first";
}

TEST(TokenChooser, IsAFunctionOfSeedAndPlace) {
  const Logits logits(50, 0.0);
  TokenChooser one({.seed = 3}), other({.seed = 3}), third({.seed = 4});
  bool differs = false;
  for (int i = 0; i < 20; ++i) {
    const auto token = one.choose(std::span<const double>(logits), i).token;
    other.choose(std::span<const double>(logits), i + 100);
    EXPECT_EQ(other.choose(std::span<const double>(logits), i).token, token);
    differs = differs || third.choose(std::span<const double>(logits), i).token != token;
  }
  EXPECT_TRUE(differs);
}

TEST(TokenChooser, PenalisesWhatTheSequenceHas) {
  const Logits logits = {2, 1.5, -1, -1.1};
  TokenChooser chooser({.temperature = 0, .repetition_penalty = 2});
  const std::vector<std::int64_t> prompt = {0, 2};
  chooser.see(prompt);
  EXPECT_EQ(chooser.choose(std::span<const double>(logits), 0).token, 1) << "2 became 1";
  EXPECT_EQ(chooser.choose(std::span<const double>(logits), 1).token, 0) << "1.5 became 0.75";
}

TEST(TokenChooser, TellsLogProbabilitiesOfTheModel) {
  const Logits logits = {std::log(0.1), std::log(0.6), std::log(0.3)};
  TokenChooser chooser({.temperature = 0, .logprobs = 2});
  const auto made = chooser.choose(std::span<const double>(logits), 0);
  EXPECT_NEAR(made.logprob, std::log(0.6), 1e-12);
  ASSERT_EQ(made.most.size(), 2U);
  EXPECT_EQ(made.most[1].token, 2);
  EXPECT_NEAR(made.most[1].logprob, std::log(0.3), 1e-12);
}

TEST(TokenChooser, ChoosesTheSameTokenAmongTheMostProbableOnes) {
  Logits logits;
  for (int i = 0; i < 200; ++i) logits.push_back(std::sin(static_cast<double>(i * i)) * 3);
  double all = 0;
  const auto highest = std::ranges::max(logits);
  for (const double logit : logits) all += std::exp((logit - highest) / 0.8);
  const auto best_of = [&](std::size_t count) {
    std::vector<TokenScore> best;
    for (std::size_t i = 0; i < logits.size(); ++i) best.push_back({static_cast<std::int64_t>(i), logits[i]});
    std::ranges::sort(best, [](const TokenScore& a, const TokenScore& b) { return a.score > b.score; });
    best.resize(count);
    return best;
  };
  for (int place = 0; place < 300; ++place) {
    for (const SamplingParams& params : {SamplingParams{.temperature = 0.8, .top_k = 9, .seed = 3},
                                         SamplingParams{.temperature = 0.8, .top_k = 9, .top_p = 0.6, .min_p = 0.2},
                                         SamplingParams{.temperature = 0.8, .top_p = 0.4, .seed = 5}}) {
      TokenChooser chooser(params);
      const auto wanted = chooser.choose(std::span<const double>(logits), place).token;
      const bool some = params.top_k == 0;
      EXPECT_EQ(
          TokenChooser::choose_among(best_of(some ? 150 : 9), params, place, some ? std::optional(all) : std::nullopt),
          wanted);
    }
  }
  EXPECT_EQ(TokenChooser::choose_among(best_of(5), {.temperature = 0.8, .top_p = 0.99}, 0, all), std::nullopt)
      << "five of them are not as probable";
}

TEST(TokenChooser, RefusesLogitsThatAreNoNumbers) {
  const Logits logits(3, std::numeric_limits<double>::quiet_NaN());
  TokenChooser chooser({.temperature = 0});
  try {
    chooser.choose(std::span<const double>(logits), 0);
    FAIL() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "the model's logits have no largest number: its weights or its arithmetic are damaged");
    EXPECT_EQ(error.remedy(), "compute in float32, or check the model's weights");
  }
}

}  // namespace token_chooser_test
}  // namespace orthant
