#include "orthant/text/charsmap.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "text/small_charsmap.h"

namespace orthant {
namespace charsmap_test {

std::string refusal(std::string_view bytes) {
  return error_text<DataError>([&] { Charsmap(bytes, "t.json"); });
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Charsmap, FindsTheLongestAndTheShortestEntry) {
  const Charsmap map(SmallCharsmap({{"a", "1"}, {"ab", "22"}, {"abcd", ""}, {"\u00e9", "e"}}).bytes(), "memory");
  EXPECT_EQ(map.longest("abc").length, 2U);
  EXPECT_EQ(map.longest("abc").result, "22");
  EXPECT_EQ(map.longest("abcde").length, 4U);
  EXPECT_EQ(map.longest("abcde").result, "");
  EXPECT_EQ(map.shortest("abcde").length, 1U);
  EXPECT_EQ(map.shortest("abcde").result, "1");
  EXPECT_EQ(map.longest("\u00e9").result, "e");
  EXPECT_EQ(map.longest("\xc3").length, 0U);
  EXPECT_EQ(map.longest("b").length, 0U);
  EXPECT_EQ(map.longest("").length, 0U);
  EXPECT_TRUE(map.may_begin('a'));
  EXPECT_FALSE(map.may_begin('b'));
}

TEST(Charsmap, RefusesWhatIsNoTable) {
  expect_part(refusal("abc"), "t.json: the table of the normalizer (precompiled_charsmap) has 3 bytes, too few");
  expect_part(refusal(std::string("\xff\xff\xff\x7f", 4) + "12345678"), "says that 2147483647 of its 12 bytes");
  expect_part(refusal(std::string("\x05\0\0\0", 4) + "12345678"), "says that 5 of its 12 bytes are the trie");
  expect_part(refusal(std::string("\0\0\0\0", 4) + "12345678"), "says that 0 of its 12 bytes are the trie");
  expect_part(refusal(SmallCharsmap({{"a", "\xff"}}).bytes()), "has results that are not UTF-8");
  expect_part(refusal(std::string(Charsmap::kMaxBytes + 1, 'x')), "at most 16777216 are read");
}

TEST(Charsmap, AWalkNeverLeavesADamagedTable) {
  const auto good = SmallCharsmap({{"a", "1"}, {"ab", "22"}, {"b", "3"}}).bytes();
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = good;
    for (int i = 0; i < 40; ++i) bytes[4 + random() % 2048] = static_cast<char>(random());
    const Charsmap map(bytes, "memory");
    for (const char* text : {"a", "ab", "b", "abab", "zz"}) {
      EXPECT_LE(map.longest(text).length, 4U);
      EXPECT_LE(map.longest(text).result.size(), good.size());
    }
  }
}

std::string word(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// A table whose `byte` leads back to where it began, with an entry each time, whose result is at `begin`.
std::string circle(unsigned char byte, std::uint32_t begin, const std::string& results) {
  std::string units = word(begin);  // the root: its offset is 0, and as an entry's end it holds the number
  for (std::uint32_t i = 1; i < 256; ++i) units += word(i == byte ? i << 10U | 1U << 8U | i : 0);
  return word(static_cast<std::uint32_t>(units.size())) + units + results;
}

TEST(Charsmap, AWalkInACircleEnds) {
  const Charsmap map(circle('a', 0, std::string("x\0", 2)), "memory");
  const std::string text(200'000, 'a');
  std::size_t found = 0;
  for (std::size_t at = 0; at < text.size(); ++at) found += map.longest(std::string_view(text).substr(at)).length;
  EXPECT_LE(found, text.size() * Charsmap::kMaxEntryBytes);
  EXPECT_EQ(map.longest("aaab").length, 3U);
  EXPECT_EQ(map.longest("aaab").result, "x");
}

TEST(Charsmap, NothingBeginsOrEndsWithinACharacter) {
  const std::string results("\u00e9\0", 3);
  EXPECT_EQ(Charsmap(circle('a', 0, results), "memory").longest("a").result, "\u00e9");
  EXPECT_EQ(Charsmap(circle('a', 1, results), "memory").longest("a").length, 0U);
  EXPECT_EQ(Charsmap(circle(0xc3, 0, results), "memory").longest("\u00e9").length, 0U);
}

}  // namespace charsmap_test
}  // namespace orthant
