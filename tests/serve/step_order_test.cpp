#include "orthant/serve/step_order.h"

#include <gtest/gtest.h>

#include <array>

#include "orthant/base/error.h"

namespace orthant {
namespace step_order_test {

TEST(StepOrder, TravelsAsNumbers) {
  StepOrder order;
  order.parts = {{.sequence = 3, .first = true, .past = 0, .tokens = {5, 6}, .answer = -1, .blocks = {7}},
                 {.sequence = 1, .past = 17, .tokens = {9}, .answer = 4, .blocks = {-1, 2}}};
  order.begun = {{.temperature = 0.7,
                  .top_k = 5,
                  .top_p = 0.9,
                  .min_p = 0.01,
                  .repetition_penalty = 1.1,
                  .seed = ~std::uint64_t{0},
                  .logprobs = 3}};
  order.ended = {2};
  const auto numbers = to_numbers(order);
  EXPECT_EQ(order_of(numbers), order);
  EXPECT_THROW(order_of(std::span(numbers).first(numbers.size() - 1)), InternalError);
  EXPECT_TRUE(order_of(to_numbers({.last = true})).last);
  EXPECT_TRUE(order_of(to_numbers({.joins = true})).joins);
}

TEST(StepOrder, TokensComeBackWithTheirLogProbabilities) {
  const std::array<int, 3> logprobs = {-1, 0, 3};
  const std::vector<GeneratedToken> tokens = {
      {.token = 8}, {.token = 9, .logprob = -0.5}, {.token = 1, .logprob = -0.1, .most = {{1, -0.1}, {0, -2.5}}}};
  const auto numbers = to_numbers(tokens, logprobs);
  EXPECT_EQ(numbers.size(), num_numbers(logprobs));
  const auto back = tokens_of(numbers, logprobs);
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(back[1].logprob, -0.5);
  ASSERT_EQ(back[2].most.size(), 2U) << "a vocabulary of two has no third";
  EXPECT_EQ(back[2].most[1].logprob, -2.5);
}

}  // namespace step_order_test
}  // namespace orthant
