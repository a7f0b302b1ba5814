#include "orthant/text/regex_splitter.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"

namespace orthant {
namespace regex_splitter_test {

using Words = std::vector<std::string>;

Words pieces(const std::string& regex, std::string_view text, SplitBehavior behavior = SplitBehavior::isolated) {
  Words words;
  for (const auto& cut : apply_behavior(make_regex_splitter(regex, "t.json")->split(text), behavior)) {
    words.emplace_back(text.substr(cut.begin, cut.end - cut.begin));
  }
  return words;
}

std::string refusal(const std::string& regex) {
  return error_text<DataError>([&] { make_regex_splitter(regex, "t.json"); });
}

TEST(RegexSplitter, BehavioursDifferInWhatBecomesOfMatches) {
  EXPECT_EQ(pieces("-", "a--b-c", SplitBehavior::isolated), (Words{"a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(pieces("-", "a--b-c", SplitBehavior::removed), (Words{"a", "b", "c"}));
  EXPECT_EQ(pieces("-", "a--b-c", SplitBehavior::merged_with_previous), (Words{"a-", "-", "b-", "c"}));
  EXPECT_EQ(pieces("-", "a--b-c", SplitBehavior::merged_with_next), (Words{"a", "-", "-b", "-c"}));
  EXPECT_EQ(pieces("-", "a--b-c", SplitBehavior::contiguous), (Words{"a", "--", "b", "-", "c"}));
}

TEST(RegexSplitter, AnEmptyMatchCuts) {
  EXPECT_EQ(pieces("(?=[A-Z])", "oneTwoThree"), (Words{"one", "Two", "Three"}));
}

TEST(RegexSplitter, WhiteSpaceAndWordsAreThoseOfUnicode16) {
  EXPECT_EQ(pieces(R"(\s)", "a\u180e\u0085\u3000z"), (Words{"a\u180e", "\u0085", "\u3000", "z"}));
  EXPECT_EQ(pieces(R"([^\s]+)", "a\u180e b"), (Words{"a\u180e", " ", "b"}));
  EXPECT_EQ(pieces(R"([\S]+)", "a\u180e b"), (Words{"a\u180e", " ", "b"}));
  EXPECT_EQ(pieces(R"(\w+)", "a\u0301_ \u2460"), (Words{"a\u0301_", " \u2460"}));
  EXPECT_EQ(pieces(R"(\p{Lu})", "\U00010d50x"), (Words{"\U00010d50", "x"}));  // Garay, since Unicode 16
  EXPECT_EQ(pieces(R"([\p{L}]+)", "!\u1c89!"), (Words{"!", "\u1c89", "!"}));
}

TEST(RegexSplitter, RefusesWhatTheDialectsReadApart) {
  for (const auto* regex : {R"(\h)", R"(a{2}+)", "[a&&b]", "[[:alpha:]]", "(?m:.)", R"(\bx)", R"(\x41)", R"([\P{L}])",
                            "(?<name>a)", R"((a)\1)", "a(?i)b", "(*ACCEPT)", "a{,3}"}) {
    const auto text = refusal(regex);
    EXPECT_NE(text.find("the regular expression " + std::string(regex) + " uses "), std::string::npos) << text;
    EXPECT_NE(text.find("t.json"), std::string::npos) << text;
  }
}

TEST(RegexSplitter, SaysWhatIsWrongWithAnExpression) {
  EXPECT_NE(refusal("(a").find("the regular expression (a is not one: missing closing parenthesis"), std::string::npos)
      << refusal("(a");
}

TEST(RegexSplitter, GivesUpOnAnExpressionThatTakesForEver) {
  const std::string text = std::string(200, 'a') + "!";
  const auto error = error_text<DataError>([&] { pieces("(?:a+a+)+[b-d]", text); });
  EXPECT_NE(error.find("gave up on a text of 201 bytes"), std::string::npos) << error;
}

}  // namespace regex_splitter_test
}  // namespace orthant
