// Tokens that kernels choose from logits, against serve/token_chooser.h.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "base/error_text.h"
#include "ops/card.h"
#include "orthant/base/error.h"
#include "orthant/generate/device_choice.h"
#include "orthant/serve/token_chooser.h"

namespace orthant {
namespace device_choice_device_test {

using test::on_card;

const int kDraws = test::num_shapes(200, 12);

struct Drawn {
  std::mt19937_64 engine;
  explicit Drawn(std::uint64_t seed) : engine(seed) { at::manual_seed(seed); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
};

// Many of which are equal.
at::Tensor logits_of(Drawn& drawn) {
  const at::ScalarType types[] = {at::kBFloat16, at::kHalf, at::kFloat};
  const auto rows = drawn.between(1, 4);
  const auto vocabulary = drawn.between(0, 1) == 0 ? drawn.between(1, 300) : 8 * drawn.between(1, 3000);
  const auto values = at::randn({rows, vocabulary}, on_card(at::kFloat)) * 4;
  return (drawn.between(0, 2) == 0 ? values.round() : values).to(types[drawn.between(0, 2)]);
}

std::vector<float> row_of(const at::Tensor& logits, std::int64_t row) {
  const at::Tensor wide = logits[row].to(at::kFloat).cpu().contiguous();
  return {wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + wide.numel()};
}

std::vector<ChoiceRow> alike(const at::Tensor& logits, const SamplingParams& params) {
  std::vector<ChoiceRow> rows;
  for (std::int64_t row = 0; row < logits.size(0); ++row) rows.push_back({&params, 3 + row});
  return rows;
}

TEST(DeviceChoice, MostProbableTokensAreTheFirstOfTheLargest) {
  Drawn drawn(1);
  for (int i = 0; i < kDraws; ++i) {
    const at::Tensor logits = logits_of(drawn);
    ASSERT_TRUE(serves_choice(logits));
    const SamplingParams greedy{.temperature = 0};
    const auto got = choose_on_device(logits, alike(logits, greedy));
    for (std::int64_t row = 0; row < logits.size(0); ++row) {
      TokenChooser chooser(greedy);
      const auto values = row_of(logits, row);
      EXPECT_EQ(got[static_cast<std::size_t>(row)], chooser.choose(std::span<const float>(values), 0).token) << i;
    }
  }
}

TEST(DeviceChoice, NumbersThatAreNoneAreNeverChosenAndNothingElseIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto row = [](std::vector<double> values) {
    return at::tensor(values, at::kDouble).to(at::kBFloat16).to(test::card()).unsqueeze(0);
  };
  for (const double temperature : {0.0, 0.7}) {
    SamplingParams params{.temperature = temperature, .top_k = 1};
    const auto choose = [&](const at::Tensor& logits) {
      return choose_on_device(logits, alike(logits, params)).front();
    };
    for (const int top_k : {0, 1, 4}) {
      params.top_k = top_k;
      if (temperature == 0 || top_k == 1) EXPECT_EQ(choose(row({nan, 1, nan, 3, 2})), 3);
      EXPECT_EQ(choose(row({-infinity, -5, nan, -infinity})), 1);
      for (const auto& damaged : {row({nan, nan}), row({1, infinity}), row({-infinity, -infinity})}) {
        EXPECT_NE(error_text<DataError>([&] { choose(damaged); }).find("have no largest number"), std::string::npos);
      }
    }
  }
}

TEST(DeviceChoice, TokensThatAreDrawnAreThoseOfTheHost) {
  Drawn drawn(2);
  int everywhere = 0, on_the_host = 0;
  for (int i = 0; i < kDraws; ++i) {
    const at::Tensor logits = logits_of(drawn);
    std::vector<SamplingParams> params;
    for (std::int64_t row = 0; row < logits.size(0); ++row) {
      SamplingParams one;
      one.temperature = std::vector<double>{0, 0.05, 0.8, 1, 3, 100}[static_cast<std::size_t>(drawn.between(0, 5))];
      one.top_k = drawn.between(0, 1) == 0 ? 0 : static_cast<int>(drawn.between(1, 256));
      one.top_p = drawn.between(0, 1) == 0 ? 1 : static_cast<double>(drawn.between(1, 99)) / 100;
      one.min_p = drawn.between(0, 2) == 0 ? static_cast<double>(drawn.between(0, 100)) / 200 : 0;
      one.seed = static_cast<std::uint64_t>(drawn.between(0, 1 << 20));
      ASSERT_TRUE(device_chooses(one));
      params.push_back(one);
    }
    std::vector<ChoiceRow> rows;
    for (std::size_t row = 0; row < params.size(); ++row)
      rows.push_back({&params[row], static_cast<std::int64_t>(row)});
    if (drawn.between(0, 3) == 0) rows.back().params = nullptr;
    const auto got = choose_on_device(logits, rows);
    for (std::size_t row = 0; row < params.size(); ++row) {
      ++everywhere;
      if (rows[row].params == nullptr) EXPECT_FALSE(got[row]);
      if (!got[row]) {
        ++on_the_host;
        continue;
      }
      TokenChooser chooser(params[row]);
      const auto values = row_of(logits, static_cast<std::int64_t>(row));
      const auto wanted = chooser.choose(std::span<const float>(values), rows[row].answer).token;
      EXPECT_EQ(*got[row], wanted) << "temperature " << params[row].temperature << ", top_k " << params[row].top_k
                                   << ", top_p " << params[row].top_p << ", min_p " << params[row].min_p;
    }
  }
  EXPECT_LT(on_the_host, everywhere);
}

TEST(DeviceChoice, LeavesToTheHostWhatNeedsAllLogits) {
  EXPECT_TRUE(device_chooses({}));
  EXPECT_FALSE(device_chooses({.repetition_penalty = 1.1}));
  EXPECT_FALSE(device_chooses({.logprobs = 0}));
  EXPECT_FALSE(device_chooses({.top_k = 257}));
}

}  // namespace device_choice_device_test
}  // namespace orthant
