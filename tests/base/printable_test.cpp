#include "orthant/base/printable.h"

#include <gtest/gtest.h>

namespace orthant {
namespace printable_test {

TEST(Printable, LeavesTextAsItIs) {
  EXPECT_EQ(printable("layers.0.weight: grün, 漢字, 🙂"), "layers.0.weight: grün, 漢字, 🙂");
}

TEST(Printable, EscapesWhatMovesATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\n\tc\x7f"), "a\\x1b[2Jb\\x0d\\x0a\\x09c\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI as one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb");  // writes from right to left
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b"),
            "a\\xe2\\x80\\xa8b");  // a line separator
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, KeepsLineBreaksWhereAsked) {
  EXPECT_EQ(printable("a\nb\rc", /*keep_lines=*/true), "a\nb\\x0dc");
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("a\xc3"), "a\\xc3");                  // cut short
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // longer than need be
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, KnowsUtf8) {
  EXPECT_TRUE(is_utf8("") && is_utf8("a\n") && is_utf8("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"));
  EXPECT_FALSE(is_utf8("a\xff") || is_utf8("\xc3") || is_utf8("\xc0\xaf") || is_utf8("\xed\xa0\x80"));
}

}  // namespace printable_test
}  // namespace orthant
