// Chat templates and messages that want more time, memory or stack than a request may cost. Without bounds each case
// crashes the program, or takes minutes or gigabytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "mesh/thrown_error.h"
#include "orthant/serve/chat_template.h"

namespace hostile_template_test {
namespace {

using namespace orthant;
using Json = nlohmann::ordered_json;

std::string render(const std::string& text, const Json& more = Json::object(), const std::string& said = "Hi") {
  const Json messages = {{{"role", "user"}, {"content", said}}};
  return ChatTemplate::parse(text, "t").render({.messages = &messages, .more = &more});
}

// What is said of a template, without the fix.
std::string refusal(const std::string& text, const Json& more = Json::object(), const std::string& said = "Hi") {
  const auto told = test::thrown_text<DataError>([&] { render(text, more, said); });
  return told.substr(0, told.find('\n'));
}

const std::string kSteps = "t:1: the template takes more than 1000000 steps";
const std::string kBytes = "t:1: the template makes more than 67108864 bytes of text";
const std::string kDeep = "t:1: the template is nested too deeply";
const std::string kNested = "values are nested more than 100 deep";

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// A list that holds itself 2^60 times, as `a`.
const std::string kShared =
    "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}";

TEST(HostileTemplate, ValuesInOneAnotherAreBounded) {
  const auto deep = [](const std::string& inner) {
    return "{% set n = namespace(a=[]) %}{% for i in range(90000) %}{% set n.a = " + inner + " %}{% endfor %}";
  };
  EXPECT_EQ(refusal(deep("[n.a]")), "t:1: " + kNested);
  EXPECT_EQ(refusal(deep("{'a': n.a}")), "t:1: " + kNested);
  EXPECT_EQ(refusal(deep("[n.a.count]")), "t:1: " + kNested);  // a method holds its list
  EXPECT_EQ(
      render("{% set n = namespace(a=0) %}{% for i in range(90000) %}{% set n.a = namespace(a=n.a) %}{% endfor %}x"),
      "x");
  EXPECT_EQ(render("{% set n = namespace(a=0) %}{% set n.a = [n] %}x"), "x");
}

TEST(HostileTemplate, ValuesThatAreSharedCostWhatTheyAreWorth) {
  EXPECT_EQ(refusal(kShared + "{{ n.a }}"), kBytes);
  EXPECT_EQ(refusal(kShared + "{{ n.a | string | length }}"), kBytes);
  EXPECT_EQ(refusal(kShared + "{{ n.a | tojson }}"), kBytes);
  EXPECT_EQ(refusal(kShared + "{{ n.a ~ '' }}"), kBytes);
  EXPECT_EQ(refusal(kShared + "{{ n.a is lower }}"), kBytes);
  EXPECT_EQ(refusal(kShared + "{{ n.a == n.b }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ n.a < n.b }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ n.a in [n.b] }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ n.a is eq(n.b) }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ [n.a, n.b] | sort }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ [n.a, n.b] | unique }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ [n.a, n.b] | max }}"), kSteps);
  EXPECT_EQ(refusal(kShared + "{{ [n.a].index(n.b) }}"), kSteps);
}

TEST(HostileTemplate, TextsAreBoundedBeforeTheyAreMade) {
  EXPECT_EQ(refusal("{{ range(100000) | join('a' * 1000000) }}"), kBytes);
  EXPECT_EQ(refusal("{{ range(100000) | list | tojson(indent='a' * 1000000) }}"), kBytes);
  EXPECT_EQ(refusal("{{ range(100000) | list | tojson(separators=['a' * 1000000, ':']) }}"), kBytes);
  EXPECT_EQ(refusal("{{ (['a' * 1000000] * 60000) | sort | length }}"), kSteps);
  EXPECT_EQ(refusal("{{ (['a' * 1000000] * 60000) | string | length }}"), kBytes);
  EXPECT_EQ(refusal("{{ ('a' * 60000000) | list | length }}"), kSteps);
  EXPECT_EQ(refusal("{% set n = namespace(a=[]) %}{% set b = [1] * 400000 %}{% for i in range(1000) %}"
                    "{% set n.a = n.a + [b | list] %}{% endfor %}"),
            kSteps);
}

TEST(HostileTemplate, LookingForTextsIsBounded) {
  const std::string far = "('a' * 4000000)";
  const std::string part = "('a' * 2000000 + 'b')";
  for (const auto& use : {".find(" + part + ")", ".count(" + part + ")", ".split(" + part + ")",
                          ".partition(" + part + ")", ".replace(" + part + ", '')", " | replace(" + part + ", '')"}) {
    EXPECT_EQ(refusal("{{ " + far + use + " }}"), kSteps) << use;
  }
  EXPECT_EQ(refusal("{{ " + part + " in " + far + " }}"), kSteps);
  EXPECT_EQ(refusal("{{ " + part + " is in(" + far + ") }}"), kSteps);
}

// These are no more than long: each must be read in about the time that its bytes take.
TEST(HostileTemplate, LongTextsTakeNoLongerThanTheyAreLong) {
  EXPECT_EQ(render("{{ messages[0].content.split() | length }}", {}, repeated("a ", 500000)), "500000");
  EXPECT_EQ(render("{{ messages[0].content.rsplit() | length }}", {}, repeated("a ", 500000)), "500000");
  EXPECT_EQ(render(repeated("{{a}}", 150000)), "");
  EXPECT_EQ(render(repeated("{{a-}} ", 140000)), "");
}

TEST(HostileTemplate, ChainsOfOperatorsAreBounded) {
  EXPECT_EQ(refusal("{{ 1" + repeated("+1", 400000) + " }}"), kDeep);
  EXPECT_EQ(refusal("{{ 1" + repeated(" or 1", 150000) + " }}"), kDeep);
  EXPECT_EQ(refusal("{{ 1" + repeated(" if 1", 150000) + " }}"), kDeep);
  std::string nested = "1";
  for (int i = 0; i < 100; ++i) nested = "(" + nested + repeated("+1", 500) + ")";
  EXPECT_EQ(refusal("{{ " + nested + " }}"), kDeep);
}

TEST(HostileTemplate, IntegersDoNotOverflow) {
  const Json extremes = {{"least", INT64_MIN}, {"most", INT64_MAX}};
  EXPECT_EQ(render("{{ range(most - 1, most, 7) | length }}", extremes), "1");
  EXPECT_EQ(render("{{ range(least + 1, least, -7) | length }}", extremes), "1");
  EXPECT_EQ(refusal("{{ least | abs }}", extremes), "t:1: an integer is too large");
  EXPECT_EQ(render("{{ least is divisibleby(-1) }}", extremes), "True");
}

TEST(HostileTemplate, DictsOfManyKeysAreBounded) {
  std::string literal = "{{ {";
  for (int i = 0; i < 60000; ++i) literal += "'" + std::to_string(i) + "':1,";
  EXPECT_EQ(refusal(literal + "} | length }}"), kSteps);
  std::string names;
  for (int i = 0; i < 40000; ++i) names += "{% set a" + std::to_string(i) + " = 1 %}";
  EXPECT_EQ(refusal(names), kSteps);
}

TEST(HostileTemplate, MessagesInOneAnotherAreBounded) {
  Json deep = 1;
  for (int i = 0; i < 100000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  Json more = Json::object();
  more["arguments"] = std::move(deep);
  EXPECT_EQ(refusal("x", more), kNested);
}

}  // namespace
}  // namespace hostile_template_test
