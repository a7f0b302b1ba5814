#include "orthant/text/text_normalizer.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/text/charsmap.h"
#include "text/small_charsmap.h"

namespace orthant {
namespace text_normalizer_test {

std::string normalized(const NormalizerRulePtr& rule, std::string_view text) {
  std::string buffer;
  return std::string(TextNormalizer({rule}).apply_replacing(text, buffer));
}

TEST(TextNormalizer, PutsTextBeforeTextThatIsNotEmpty) {
  EXPECT_EQ(normalized(make_prepend("_"), "a b"), "_a b");
  EXPECT_EQ(normalized(make_prepend("_"), ""), "");
}

TEST(TextNormalizer, ReplacesEveryMatch) {
  const auto rule = make_replace(make_literal_splitter("  "), "-", "two spaces");
  EXPECT_EQ(normalized(rule, "a  b    c d"), "a-b--c d");
}

TEST(TextNormalizer, StripsWhiteSpaceAtTheEndsItIsAskedTo) {
  EXPECT_EQ(normalized(make_strip(true, true), " \u3000a b\t"), "a b");
  EXPECT_EQ(normalized(make_strip(true, false), " a "), "a ");
  EXPECT_EQ(normalized(make_strip(false, true), " a "), " a");
  EXPECT_EQ(normalized(make_strip(true, true), " \t "), "");
  EXPECT_EQ(normalized(make_strip(false, false), " a "), " a ");
}

TEST(TextNormalizer, StripsTheMarksOfUnicode9) {
  EXPECT_EQ(normalized(make_strip_accents(), "e\u0301a\u0903\u20dd"), "ea");
  EXPECT_EQ(normalized(make_strip_accents(), "\u00e9"), "\u00e9");
  EXPECT_EQ(normalized(make_strip_accents(), "a\u1abfb"), "a\u1abfb") << "a mark since Unicode 13";
  EXPECT_EQ(normalized(make_strip_accents(), "a\u1cf2b\U0001171e"), "ab") << "marks of other kinds since";
}

TEST(TextNormalizer, ATableReplacesWholeClusters) {
  const auto map = std::make_shared<const Charsmap>(
      SmallCharsmap({{"e", "E"}, {"\u0301", "'"}, {"\r\n", " "}, {"x", ""}}).bytes(), "memory");
  const auto rule = make_precompiled(map);
  EXPECT_EQ(normalized(rule, "be"), "bE");
  EXPECT_EQ(normalized(rule, "e\u0301"), "E") << "the mark is lost with its short cluster";
  EXPECT_EQ(normalized(rule, "e\u0301\u0301\u0301"), "E'''") << "a long cluster is taken by characters";
  EXPECT_EQ(normalized(rule, "a\u0301"), "a'");
  EXPECT_EQ(normalized(rule, "a\r\nxb"), "a b");
}

TEST(TextNormalizer, BytesThatAreNotUtf8PassThroughOrAreReplaced) {
  const TextNormalizer lower({make_lowercase()});
  std::string buffer;
  EXPECT_EQ(lower.apply("A\xff\xe4\xb8Z", buffer), "a\xff\xe4\xb8z");
  EXPECT_EQ(lower.apply_replacing("A\xff\xe4\xb8Z", buffer), "a\ufffd\ufffdz");
}

TEST(TextNormalizer, RefusesToMakeTextManyTimesLonger) {
  std::vector<NormalizerRulePtr> rules(40, make_replace(make_literal_splitter("a"), "aa", "a"));
  std::string buffer;
  const auto text = error_text<DataError>([&] { (void)TextNormalizer(rules).apply("aaaa", buffer); });
  EXPECT_NE(text.find("the normalizer makes more than 4352 bytes of one text"), std::string::npos) << text;
}

}  // namespace text_normalizer_test
}  // namespace orthant
