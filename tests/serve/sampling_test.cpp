#include "orthant/serve/sampling.h"

#include <gtest/gtest.h>

#include <limits>

#include "mesh/thrown_error.h"

namespace orthant {
namespace sampling_test {

std::string refused(const SamplingParams& params) {
  return test::thrown_text([&] { check(params); });
}

TEST(SamplingParams, NameTheOptionThatIsOutOfRange) {
  check(SamplingParams{});
  check(SamplingParams{.temperature = 0, .top_k = 1, .top_p = 1e-9, .min_p = 1, .logprobs = kMostLogprobs});
  EXPECT_EQ(refused({.temperature = -1}), "temperature is -1\nuse temperature from 0 to 100");
  EXPECT_EQ(refused({.temperature = std::numeric_limits<double>::quiet_NaN()}),
            "temperature is nan\nuse temperature from 0 to 100");
  EXPECT_EQ(refused({.top_k = -2}), "top_k is -2\nuse 0 for all tokens, or a count");
  EXPECT_EQ(refused({.top_p = 0}), "top_p is 0\nuse top_p greater than 0 and at most 1");
  EXPECT_EQ(refused({.min_p = 1.5}), "min_p is 1.5\nuse min_p from 0 to 1");
  EXPECT_EQ(refused({.repetition_penalty = 0}),
            "repetition_penalty is 0\nuse repetition_penalty greater than 0 and at most 100");
  EXPECT_EQ(refused({.max_tokens = 0}), "max_tokens is 0\nask for at least one token");
  EXPECT_EQ(refused({.logprobs = 21}), "logprobs is 21\nuse a count from 0 to 20, or leave it out");
}

}  // namespace sampling_test
}  // namespace orthant
