#include "orthant/base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace orthant {
namespace nearest_test {

const std::vector<std::string> kKeys = {"hidden_size", "num_layers", "num_heads", "tp", "vocab_size"};

TEST(Nearest, FindsANameWithOneTypingError) {
  EXPECT_EQ(nearest("hiden_size", kKeys), "hidden_size");
  EXPECT_EQ(nearest("hidden_sizes", kKeys), "hidden_size");
  EXPECT_EQ(nearest("hidden_sixe", kKeys), "hidden_size");
}

TEST(Nearest, CountsASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(edit_distance("pt", "tp"), 1u);
  EXPECT_EQ(nearest("pt", kKeys), "tp");
}

TEST(Nearest, TakesDashesForUnderscoresAndIgnoresCase) {
  EXPECT_EQ(edit_distance("hidden-size", "hidden_size"), 0u);
  EXPECT_EQ(nearest("Num-Layers", kKeys), "num_layers");
}

TEST(Nearest, FindsTheContinuationOfAnUnfinishedName) {
  EXPECT_EQ(nearest("vocab", kKeys), "vocab_size");
}

TEST(Nearest, SuggestsNothingForANameThatIsFarFromAll) {
  EXPECT_EQ(nearest("learning_rate", kKeys), std::nullopt);
  EXPECT_EQ(nearest("xy", kKeys), std::nullopt);
  EXPECT_EQ(nearest("", kKeys), std::nullopt);
  EXPECT_EQ(nearest("hidden_size", {}), std::nullopt);
}

TEST(Nearest, DoesNotTakeOneLetterForAnother) {
  const std::vector<std::string> letters = {"a", "b"};
  EXPECT_EQ(nearest("c", letters), std::nullopt);
  EXPECT_EQ(nearest("B", letters), "b");
}

TEST(Nearest, PrefersTheFirstOfEquallyNearNames) {
  const std::vector<std::string> names = {"test_a", "test_b"};
  EXPECT_EQ(nearest("test_c", names), "test_a");
}

TEST(Nearest, AnswersAtOnceForAHugeName) {
  EXPECT_EQ(nearest(std::string(1'000'000, 'a'), kKeys), std::nullopt);
}

TEST(EditDistance, CountsEditsFromTheEmptyName) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

}  // namespace nearest_test
}  // namespace orthant
