#include "orthant/text/unicode.h"

#include <gtest/gtest.h>

#include "orthant/text/byte_alphabet.h"

namespace orthant::unicode {
namespace unicode_test {

TEST(Unicode, CategoriesAreThoseOfVersion16) {
  EXPECT_EQ(category(U'A'), Category::Lu);
  EXPECT_EQ(category(0x0301), Category::Mn);
  EXPECT_EQ(category(0x2167), Category::Nl);
  EXPECT_EQ(category(0x1c89), Category::Lu);   // 16.0
  EXPECT_EQ(category(0x10d49), Category::Nd);  // 16.0
  EXPECT_EQ(category(0x2ebf0), Category::Lo);  // 15.1
  EXPECT_EQ(category(0x110000), Category::Cn);
}

TEST(Unicode, UpdatesAreInOrderAndDoNotOverlap) {
  char32_t previous = 0;
  for (const auto& range : category_updates()) {
    EXPECT_GT(range.first, previous);
    EXPECT_GE(range.last, range.first);
    previous = range.last;
  }
}

TEST(Unicode, TheTableOfKindsSaysWhatCategoriesSay) {
  const auto& kinds = KindTable::get();
  for (char32_t c = 0; c < 0x110000; ++c) {
    const auto of = category(c);
    const auto expected = is_letter(of)   ? Kind::letter
                          : is_number(of) ? Kind::number
                          : is_space(c)   ? Kind::space
                                          : Kind::other;
    ASSERT_EQ(kinds[c], expected) << "U+" << std::hex << static_cast<std::uint32_t>(c);
  }
}

TEST(Unicode, DecodesWellFormedTextOnly) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(text, c);
    const auto found = decode(text, 0);
    ASSERT_EQ(found.character, c);
    ASSERT_EQ(found.length, static_cast<int>(text.size()));
    ASSERT_EQ(decode_valid(text.data()).character, c);
    for (std::size_t cut = 1; cut < text.size(); ++cut) ASSERT_EQ(decode(text.substr(0, cut), 0).length, 0);
  }
  for (const std::string_view broken :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xe4\xb8z"}) {
    EXPECT_EQ(decode(broken, 0).length, 0);
    EXPECT_EQ(valid_length("abcdefghi" + std::string(broken), 0), 9u);
  }
}

TEST(ByteAlphabet, EveryByteHasAVisibleCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(bytes_of_spelling(spelling_of_bytes(bytes)), bytes);
  }
  EXPECT_EQ(spelling_of_bytes(" a\n\xff"), "\u0120a\u010a\u00ff");
  EXPECT_EQ(bytes_of_spelling(" "), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\u0144"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\xff"), std::nullopt);
}

}  // namespace unicode_test
}  // namespace orthant::unicode
