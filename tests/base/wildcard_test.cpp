#include "orthant/base/wildcard.h"

#include <gtest/gtest.h>

namespace orthant {
namespace wildcard_test {

TEST(Pattern, StarStandsForAnyText) {
  EXPECT_TRUE(matches_pattern("embed.weight", "embed.weight"));
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("*", "embed.weight"));
  EXPECT_TRUE(matches_pattern("layers.*.norm1.weight", "layers.12.norm1.weight"));
  EXPECT_TRUE(matches_pattern("*.w*.weight", "layers.0.attention.wq.weight"));
  EXPECT_TRUE(matches_pattern("a*ab", "aaab"));
  EXPECT_TRUE(matches_pattern("embed**", "embed"));
  EXPECT_FALSE(matches_pattern("embed", "embed.weight"));
  EXPECT_FALSE(matches_pattern("*.weights", "embed.weight"));
  EXPECT_FALSE(matches_pattern("embed.weight.*", "embed.weight"));
  EXPECT_FALSE(matches_pattern("", "embed"));
}

}  // namespace wildcard_test
}  // namespace orthant
