#include "orthant/data/piece_vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mesh/thrown_error.h"

namespace orthant {
namespace piece_vocabulary_test {

constexpr std::int64_t kAscii = 72;  // both forms of 26 letters and 10 digits
constexpr std::int64_t kSpecial = 5;

bool has(const std::vector<std::string>& tokens, const std::string& token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

TEST(PieceVocabulary, BeginsWithBertsSpecialTokensAndHoldsEveryCharacter) {
  const auto tokens = piece_vocabulary({{"naïve", 1}, {"!", 1}, {"東京", 1}}, 1000);
  EXPECT_EQ((std::vector<std::string>(tokens.begin(), tokens.begin() + 5)),
            (std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}));
  for (const char* token : {"n", "##n", "z", "##z", "7", "##7", "##ï", "!", "東", "##京"})
    EXPECT_TRUE(has(tokens, token)) << token;
  for (const char* token : {"ï", "##!", "##東", "京", "A"}) EXPECT_FALSE(has(tokens, token)) << token;
  EXPECT_EQ(tokens.size(), static_cast<std::size_t>(kSpecial + kAscii + 4)) << "words that came once make no tokens";
}

TEST(PieceVocabulary, TakesFrequentWordsThenFrequentEndings) {
  const WordCounts words = {{"the", 50}, {"movie", 20}, {"walking", 3}, {"talking", 2}, {"singing", 1}, {"once", 1}};
  const auto base = kSpecial + kAscii;
  // Four more: three words, then one ending of the words left over.
  const auto tokens = piece_vocabulary(words, base + 4);
  ASSERT_EQ(tokens.size(), static_cast<std::size_t>(base + 4));
  EXPECT_EQ((std::vector<std::string>(tokens.end() - 4, tokens.end())),
            (std::vector<std::string>{"the", "movie", "walking", "##ing"}));
  // With room to spare every repeated word is in, and no token comes twice.
  const auto all = piece_vocabulary(words, 5000);
  EXPECT_TRUE(has(all, "talking"));
  EXPECT_FALSE(has(all, "singing"));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

TEST(PieceVocabulary, DoesNotDependOnTheOrderOfTheMap) {
  WordCounts forward;
  WordCounts backward;
  backward.rehash(7919);
  for (int i = 0; i < 500; ++i) forward["w" + std::to_string(i * 37 % 500)] = 2 + i % 3;
  std::vector<std::pair<std::string, std::int64_t>> copies(forward.begin(), forward.end());
  std::ranges::reverse(copies);
  for (const auto& [word, count] : copies) backward[word] = count;
  EXPECT_EQ(piece_vocabulary(forward, 200), piece_vocabulary(backward, 200));
}

TEST(PieceVocabulary, RefusesASizeThatDoesNotHoldTheCharacters) {
  EXPECT_EQ(test::thrown_text([] { piece_vocabulary({{"é", 1}}, 70); }),
            "a vocabulary of 70 does not hold the 78 special tokens and single characters\nset --size to 78 or more");
}

}  // namespace piece_vocabulary_test
}  // namespace orthant
