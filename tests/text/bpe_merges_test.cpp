#include "orthant/text/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace orthant {
namespace bpe_merges_test {

using Ids = std::vector<std::int32_t>;
using Pairs = std::map<std::pair<std::int32_t, std::int32_t>, BpeMerges::Merge>;

// The definition, word for word.
Ids merge_slowly(Ids symbols, const Pairs& pairs) {
  while (true) {
    auto best = symbols.size();
    std::uint32_t rank = BpeMerges::kNoRank;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto place = pairs.find({symbols[i], symbols[i + 1]});
      if (place != pairs.end() && place->second.rank < rank) {
        rank = place->second.rank;
        best = i;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = pairs.at({symbols[best], symbols[best + 1]}).id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Random merges over `letters` symbols; later ones use what earlier ones made.
Pairs random_pairs(std::mt19937& random, int letters, int count) {
  Pairs pairs;
  std::int32_t next = letters;
  for (int rank = 0; rank < count; ++rank) {
    const auto left = static_cast<std::int32_t>(random() % static_cast<unsigned>(next));
    const auto right = static_cast<std::int32_t>(random() % static_cast<unsigned>(next));
    if (pairs.contains({left, right})) continue;
    pairs[{left, right}] = {static_cast<std::uint32_t>(rank), next++};
  }
  return pairs;
}

BpeMerges table_of(const Pairs& pairs) {
  BpeMerges merges(pairs.size());
  for (const auto& [pair, merge] : pairs) merges.set(pair.first, pair.second, merge);
  return merges;
}

TEST(BpeMerges, MergesTheLowestRankAndLeftmostFirst) {
  BpeMerges merges(3);
  merges.set(1, 2, {1, 10});
  merges.set(2, 3, {0, 11});
  merges.set(10, 3, {2, 12});
  Ids ids = {1, 2, 3};
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (Ids{1, 11}));
  merges.set(5, 5, {7, 20});
  ids = {5, 5, 5};
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (Ids{20, 5}));
}

TEST(BpeMerges, LeavesWhatLiesBeforeTheWord) {
  BpeMerges merges(1);
  merges.set(1, 1, {0, 2});
  Ids ids = {1, 1, 1, 1};
  merges.apply(ids, 2);
  EXPECT_EQ(ids, (Ids{1, 1, 2}));
}

TEST(BpeMerges, TakesTheLaterRankOfAPairGivenTwice) {
  BpeMerges merges(3);
  merges.set(1, 2, {0, 10});
  merges.set(2, 3, {1, 11});
  merges.set(1, 2, {2, 10});
  Ids ids = {1, 2, 3};
  merges.apply(ids, 0);
  EXPECT_EQ(ids, (Ids{1, 11}));
}

TEST(BpeMerges, AgreesWithTheDefinitionOnWordsOfAnyLength) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + static_cast<int>(random() % 5);
    const auto pairs = random_pairs(random, letters, 1 + static_cast<int>(random() % 60));
    const auto merges = table_of(pairs);
    Ids word(random() % 200);
    for (auto& symbol : word) symbol = static_cast<std::int32_t>(random() % static_cast<unsigned>(letters));
    Ids merged = word;
    merges.apply(merged, 0);
    ASSERT_EQ(merged, merge_slowly(word, pairs)) << "round " << round << ", a word of " << word.size() << " symbols";
  }
}

TEST(BpeMerges, ALongWordTakesNoQuadraticTime) {
  // Doubles of doubles: a million symbols become a handful. Quadratic work would take hours, not seconds.
  BpeMerges merges(24);
  for (std::int32_t level = 0; level < 24; ++level)
    merges.set(level, level, {static_cast<std::uint32_t>(level), level + 1});
  Ids word(1 << 20, 0);
  merges.apply(word, 0);
  EXPECT_EQ(word, Ids{20});
}

}  // namespace bpe_merges_test
}  // namespace orthant
