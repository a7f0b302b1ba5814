#include "orthant/train/replica_difference.h"

#include <gtest/gtest.h>

namespace orthant {
namespace replica_difference_test {

TEST(ReplicaDifference, NamesTheMinority) {
  const auto found = replica_differences({{{7, 1}, {8, 5}}, {{7, 2}}, {{7, 1}, {8, 5}}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].key, 7U);
  EXPECT_TRUE(found[0].decided());
  EXPECT_EQ(found[0].odd, std::vector<int>{1});
  EXPECT_EQ(found[0].equal, (std::vector<int>{0, 2}));
}

TEST(ReplicaDifference, NamesAllWhereNoBitsAreHeldByMost) {
  for (const auto& held : {std::vector<std::vector<HeldBits>>{{{7, 1}}, {{7, 2}}},
                           std::vector<std::vector<HeldBits>>{{{7, 1}}, {{7, 2}}, {{7, 3}}}}) {
    const auto found = replica_differences(held);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_FALSE(found[0].decided());
    EXPECT_EQ(found[0].odd.size(), held.size());
  }
}

TEST(ReplicaDifference, KeepsTheOrderOfTheLowestRank) {
  const auto found = replica_differences({{{9, 1}, {3, 1}}, {{3, 2}, {9, 2}}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key, 9U);
  EXPECT_EQ(found[1].key, 3U);
}

TEST(ReplicaDifference, SetsAreThoseOfTheRanksThatHoldAKey) {
  const std::vector<std::vector<std::uint64_t>> held = {{1, 2, 3}, {1, 2}, {2, 1, 4}};
  const auto sets = sets_of_holders(held[0], held);
  EXPECT_EQ(sets[0], sets[1]);
  EXPECT_NE(sets[0], 0U);
  EXPECT_EQ(sets[2], 0U);  // nobody else holds it
  EXPECT_EQ(sets_of_holders(held[1], held), (std::vector<std::uint64_t>{sets[0], sets[0]}));
}

TEST(ReplicaDifference, ListsRanksAsPeopleRead) {
  EXPECT_EQ(ranks_text({4}), "rank 4");
  EXPECT_EQ(ranks_text({0, 2, 3}), "ranks 0, 2 and 3");
  EXPECT_EQ(ranks_text({0, 1}, {"a", "b"}), "ranks 0 (host a) and 1 (host b)");
}

}  // namespace replica_difference_test
}  // namespace orthant
