#include "orthant/data/word_vocabulary.h"

#include <gtest/gtest.h>

#include <array>

namespace orthant {
namespace word_vocabulary_test {

const std::vector<std::string> kTexts = {"the parcel  is lost", "is it lost ?"};

TEST(WordVocabulary, WordsAreThePartsBetweenBlanks) {
  EXPECT_EQ(words_of("  one two   three "), (std::vector<std::string_view>{"one", "two", "three"}));
  EXPECT_TRUE(words_of("").empty());
  EXPECT_TRUE(words_of("  ").empty());
}

TEST(WordVocabulary, ListsSpecialTokensThenEachWordOnce) {
  const WordVocabulary vocabulary(kTexts);
  EXPECT_EQ(vocabulary.words(), (std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?", "is", "it",
                                                          "lost", "parcel", "the"}));
  EXPECT_EQ(vocabulary.size(), 11);
  EXPECT_EQ(vocabulary.id("[CLS]"), WordVocabulary::kBegin);
  EXPECT_EQ(vocabulary.id("lost"), 8);
  EXPECT_EQ(vocabulary.id("found"), WordVocabulary::kUnknown);
}

template <std::size_t length>
struct Encoded {
  explicit Encoded(std::string_view text) { WordVocabulary(kTexts).encode(text, ids, mask); }
  std::array<std::int64_t, length> ids;
  std::array<bool, length> mask;
};

TEST(WordVocabulary, PadsShortTexts) {
  const Encoded<6> encoded("is gone");
  EXPECT_EQ(encoded.ids, (std::array<std::int64_t, 6>{2, 6, 1, 3, 0, 0}));
  EXPECT_EQ(encoded.mask, (std::array<bool, 6>{true, true, true, true, false, false}));
}

TEST(WordVocabulary, KeepsTextsThatJustFit) {
  EXPECT_EQ(Encoded<6>("the parcel is lost").ids, (std::array<std::int64_t, 6>{2, 10, 9, 6, 8, 3}));
}

TEST(WordVocabulary, CutsLongTextsAndEndsThem) {
  const Encoded<5> encoded("the parcel is lost");
  EXPECT_EQ(encoded.ids, (std::array<std::int64_t, 5>{2, 10, 9, 6, 3}));
  EXPECT_EQ(encoded.mask, (std::array<bool, 5>{true, true, true, true, true}));
}

}  // namespace word_vocabulary_test
}  // namespace orthant
