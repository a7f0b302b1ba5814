#include "orthant/text/word_splitter.h"

#include <gtest/gtest.h>

#include <random>

#include "orthant/text/regex_splitter.h"

namespace orthant {
namespace word_splitter_test {

std::vector<std::string> words_of(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> words;
  for (const auto& cut : splitter.split(text)) words.emplace_back(text.substr(cut.begin, cut.end - cut.begin));
  return words;
}

using Words = std::vector<std::string>;

TEST(WordSplitter, CutsAsGpt2Does) {
  const auto splitter = WordSplitter::gpt2();
  EXPECT_EQ(words_of(splitter, "I'm here, aren't we'LL  2024?!\n\n x"),
            (Words{"I", "'m", " here", ",", " aren", "'t", " we", "'", "LL", " ", " 2024", "?!", "\n\n", " x"}));
  EXPECT_EQ(words_of(splitter, "   "), Words{"   "});
  EXPECT_EQ(words_of(splitter, "\n\nx"), (Words{"\n", "\n", "x"}));
}

TEST(WordSplitter, CutsAsLlama3Does) {
  const auto splitter = *WordSplitter::of_regex(kLlama3Regex);
  EXPECT_EQ(words_of(splitter, "I'M here,\n12345 \n\n  x\tyes (no)\n"),
            (Words{"I", "'M", " here", ",\n", "123", "45", " \n\n", " ", " x", "\tyes", " (", "no", ")\n"}));
  EXPECT_EQ(words_of(*WordSplitter::of_regex(kQwen2Regex), "123"), (Words{"1", "2", "3"}));
}

TEST(WordSplitter, KnowsNoOtherExpression) {
  EXPECT_FALSE(WordSplitter::of_regex(R"(\w+)"));
}

// Characters of every kind, edges of the categories and of UTF-8 lengths among them.
char32_t random_character(std::mt19937& random) {
  static const std::u32string kOften =
      U"  \n\r\t''sStTmMdDrReEvVlLaz09.,!\u017f\u00a0\u0085\u180e\u2028\u3000\u200d\u0301é中٣½Ⅷ😀";
  if (random() % 4 != 0) return kOften[random() % kOften.size()];
  const char32_t character = random() % (random() % 2 ? 0x3000 : 0x110000);
  return character >= 0xd800 && character < 0xe000 ? U'x' : character;
}

TEST(WordSplitter, AgreesWithTheRegularExpression) {
  std::mt19937 random(3);
  for (const auto regex : {kGpt2Regex, kLlama3Regex, kQwen2Regex}) {
    const auto by_hand = *WordSplitter::of_regex(regex);
    const auto by_regex = make_regex_splitter(regex, "test");
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      const auto length = random() % 40;
      for (unsigned i = 0; i < length; ++i) unicode::append_utf8(text, random_character(random));
      ASSERT_EQ(words_of(by_hand, text), words_of(*by_regex, text)) << regex << "\non " << testing::PrintToString(text);
    }
  }
}

TEST(WordSplitter, AgreesWithTheRegularExpressionOnEveryAssignedCharacter) {
  std::string text;
  for (char32_t character = 0; character < 0x110000; character += character < 0x32000 ? 1 : 101) {
    if (character >= 0xd800 && character < 0xe000) continue;
    text += " a";
    unicode::append_utf8(text, character);
    unicode::append_utf8(text, character);
    text += "'1";
  }
  for (const auto regex : {kGpt2Regex, kLlama3Regex}) {
    const auto expected = make_regex_splitter(regex, "test")->split(text);
    const auto found = WordSplitter::of_regex(regex)->split(text);
    ASSERT_EQ(found.size(), expected.size()) << regex;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].end, expected[i].end) << regex << " at byte " << found[i].begin;
    }
  }
}

}  // namespace word_splitter_test
}  // namespace orthant
