#include "orthant/text/shown.h"

#include <gtest/gtest.h>

namespace orthant {
namespace shown_test {

TEST(Shown, TextsAreQuotedAndEscaped) {
  EXPECT_EQ(shown("NA"), "\"NA\"");
  EXPECT_EQ(shown(std::string_view("a\tb\x7f\0", 5)), "\"a\\x09b\\x7f\\x00\"");
}

TEST(Shown, LongTextsAreCutBetweenCharacters) {
  std::string umlauts = "\x01";
  for (int i = 0; i < 30; ++i) umlauts += "ü";
  EXPECT_EQ(shown(umlauts), "\"\\x01üüüüüüüüüüüüüüüüüüü...\"");
  EXPECT_EQ(shown("abc", 3), "\"abc\"");
  EXPECT_EQ(shown("abcd", 3), "\"abc...\"");
  EXPECT_EQ(cut_text("a€b", 3), "a");
  EXPECT_EQ(cut_text("a€b", 4), "a€");
  EXPECT_EQ(cut_text("\x80\x80\x80", 2), "") << "no character begins here";
}

}  // namespace shown_test
}  // namespace orthant
