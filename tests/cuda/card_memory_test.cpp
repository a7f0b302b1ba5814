#include "orthant/cuda/card_memory.h"

#include <gtest/gtest.h>

namespace orthant::cuda {
namespace card_memory_test {

const std::vector<std::string> kStub = {MANAGEMENT_STUB};

TEST(CardMemory, IsAskedByNumberOrByName) {
  EXPECT_EQ(free_card_bytes("0", kStub), 70);
  EXPECT_EQ(free_card_bytes("1", kStub), 20);
  EXPECT_EQ(free_card_bytes("GPU-second", kStub), 20);
}

TEST(CardMemory, OfWhatIsNotThereIsNotGuessed) {
  EXPECT_EQ(free_card_bytes("2", kStub), std::nullopt);
  EXPECT_EQ(free_card_bytes("GPU-third", kStub), std::nullopt);
  EXPECT_EQ(free_card_bytes("0", {"no-such-library.so"}), std::nullopt);
}

TEST(CardMemory, BelongsToTheCardThatTheProgramSees) {
  EXPECT_EQ(visible_card("", 1), "1");
  EXPECT_EQ(visible_card("3,1", 0), "3");
  EXPECT_EQ(visible_card("3,1", 1), "1");
  EXPECT_EQ(visible_card("GPU-second", 0), "GPU-second");
  EXPECT_EQ(visible_card("3", 1), "1");  // more than are visible
}

}  // namespace card_memory_test
}  // namespace orthant::cuda
