#include "orthant/text/token_decoder.h"

#include <gtest/gtest.h>

namespace orthant {
namespace token_decoder_test {

TEST(TokenDecoder, WithoutStepsSpacesLieBetweenTokens) {
  EXPECT_EQ(TokenDecoder().decode({"a", "b"}), "a b");
  EXPECT_EQ(TokenDecoder().decode({}), "");
}

TEST(TokenDecoder, MetaspaceDropsTheSpacesOfTheFirstToken) {
  EXPECT_EQ(TokenDecoder({metaspace_decoder("_", true)}).decode({"_a_b", "_c", "d"}), "ab cd");
  EXPECT_EQ(TokenDecoder({metaspace_decoder("_", false)}).decode({"_a", "_c"}), " a c");
}

TEST(TokenDecoder, BytesBecomeTextOrReplacements) {
  const TokenDecoder decoder({byte_fallback_decoder(), fuse_decoder()});
  EXPECT_EQ(decoder.decode({"a", "<0xC3>", "<0xA9>", "b"}), "a\u00e9b");
  EXPECT_EQ(decoder.decode({"<0xC3>", "b", "<0xFF>", "<0x41>"}), "\ufffdb\ufffd\ufffd");
  EXPECT_EQ(decoder.decode({"<0xG1>", "<0x-1>", "<0x041>"}), "<0xG1><0x-1><0x041>");
}

TEST(TokenDecoder, StripsAFewCharactersOfEachToken) {
  EXPECT_EQ(TokenDecoder({fuse_decoder(), strip_decoder(" ", 1, 0)}).decode({"  a", " "}), " a ");
  EXPECT_EQ(TokenDecoder({strip_decoder("x", 1, 2)}).decode({"xxaxxx", "x", "a"}), "xaxa");
}

TEST(TokenDecoder, KnowsTheTokensOfBytes) {
  EXPECT_EQ(token_of_byte(10), "<0x0A>");
  EXPECT_EQ(byte_of_token("<0x0A>"), 10);
  EXPECT_EQ(byte_of_token("<0x0a>"), 10);
  EXPECT_EQ(byte_of_token("<0x0A"), -1);
}

}  // namespace token_decoder_test
}  // namespace orthant
