#include "orthant/text/added_tokens.h"

#include <gtest/gtest.h>

namespace orthant {
namespace added_tokens_test {

using Pieces = std::vector<std::pair<std::string, std::int32_t>>;

AddedTokens make(const std::vector<AddedToken>& tokens) {
  return {tokens, [](std::string_view text) { return std::string(text); }};
}

Pieces split(const AddedTokens& tokens, std::string_view text) {
  Pieces pieces;
  tokens.split_raw(text, [&](std::string_view piece, std::int32_t id) { pieces.emplace_back(piece, id); });
  return pieces;
}

TEST(AddedTokens, TheLongestThatStartsLeftmostWins) {
  const auto tokens = make({{.content = "<a", .id = 1}, {.content = "<ab>", .id = 2}, {.content = "b><", .id = 3}});
  EXPECT_EQ(split(tokens, "x<ab><a"), (Pieces{{"x", -1}, {"<ab>", 2}, {"<a", 1}}));
  EXPECT_EQ(split(tokens, "b>b><"), (Pieces{{"b>", -1}, {"b><", 3}}));
  EXPECT_EQ(split(tokens, ""), Pieces{});
}

TEST(AddedTokens, TakeWhiteSpaceAlong) {
  const auto tokens = make({{.content = "<l>", .id = 1, .lstrip = true}, {.content = "<r>", .id = 2, .rstrip = true}});
  EXPECT_EQ(split(tokens, "a \u00a0<l> b"), (Pieces{{"a", -1}, {" \u00a0<l>", 1}, {" b", -1}}));
  EXPECT_EQ(split(tokens, "a <r>\n b"), (Pieces{{"a ", -1}, {"<r>\n ", 2}, {"b", -1}}));
  EXPECT_EQ(split(tokens, "<r>  <l>"), (Pieces{{"<r>  ", 2}, {"<l>", 1}}));
}

TEST(AddedTokens, ASingleWordStandsAlone) {
  const auto tokens = make({{.content = "ab", .id = 1, .single_word = true}});
  EXPECT_EQ(split(tokens, "ab"), (Pieces{{"ab", 1}}));
  EXPECT_EQ(split(tokens, "-ab."), (Pieces{{"-", -1}, {"ab", 1}, {".", -1}}));
  for (const auto* text : {"xab", "abx", "ab_", "éab", "ab\u0301", "1ab"}) {
    EXPECT_EQ(split(tokens, text), (Pieces{{text, -1}}));
  }
}

TEST(AddedTokens, SomeAreLookedForInNormalisedText) {
  const AddedTokens tokens({{.content = "AB", .id = 1, .normalized = true}, {.content = "CD", .id = 2}},
                           [](std::string_view) { return std::string("ab"); });
  EXPECT_EQ(split(tokens, "abCD"), (Pieces{{"ab", -1}, {"CD", 2}}));
  Pieces pieces;
  tokens.split_normalized("abCDAB", [&](std::string_view piece, std::int32_t id) { pieces.emplace_back(piece, id); });
  EXPECT_EQ(pieces, (Pieces{{"ab", 1}, {"CDAB", -1}}));
}

TEST(AddedTokens, TextNeedNotBeUtf8) {
  const auto tokens = make({{.content = "<m>", .id = 1, .single_word = true, .lstrip = true, .rstrip = true}});
  EXPECT_EQ(split(tokens, "\x80\x80\x80\x80\x80 <m>\xff"),
            (Pieces{{"\x80\x80\x80\x80\x80", -1}, {" <m>", 1}, {"\xff", -1}}));
}

TEST(AddedTokens, OfTwoWithOneContentTheLastCounts) {
  const auto tokens = make({{.content = "x", .id = 1}, {.content = "x", .id = 2, .special = true}});
  EXPECT_EQ(tokens.tokens().size(), 1u);
  EXPECT_EQ(tokens.find(std::int64_t{1}), nullptr);
  EXPECT_TRUE(tokens.find("x")->special);
}

}  // namespace added_tokens_test
}  // namespace orthant
