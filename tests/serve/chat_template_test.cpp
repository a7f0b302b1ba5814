#include "orthant/serve/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mesh/thrown_error.h"

namespace orthant {
namespace chat_template_test {

using Json = nlohmann::ordered_json;
using test::thrown_text;

std::string render(const std::string& text, const Json& more = Json::object()) {
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  return ChatTemplate::parse(text, "t.jinja").render({.messages = &messages, .more = &more});
}

std::string refusal(const std::string& text, const Json& more = Json::object()) {
  return thrown_text<DataError>([&] { render(text, more); });
}

TEST(ChatTemplate, PrintsMessages) {
  EXPECT_EQ(render("{% for m in messages %}\n<{{ m.role }}>{{ m['content'] }}\n{% endfor %}\n"), "<user>Hi\n");
  EXPECT_EQ(render("{{ a }}{{ b is none }}", {{"a", 1.5}, {"b", nullptr}}), "1.5True");
}

TEST(ChatTemplate, UnknownConstructsAreRefusedWithTheirLine) {
  EXPECT_EQ(refusal("a\n{% include 'x' %}"),
            "t.jinja:2: the block {% include %} is not supported\n"
            "chat templates have for, if, set, macro, generation, break, continue and raw");
  EXPECT_EQ(refusal("{{ 1 | uper }}"), "t.jinja:1: the filter 'uper' is not supported\nthe nearest one is 'upper'");
  EXPECT_EQ(refusal("\n\n{{ 1 is strin }}"),
            "t.jinja:3: the test 'strin' is not supported\nthe nearest one is 'string'");
  EXPECT_EQ(refusal("{% if a %}\nx"), "t.jinja:2: the template ends, and {% endif %} is missing\n");
  EXPECT_EQ(refusal("{% for x in y recursive %}{% endfor %}"),
            "t.jinja:1: recursive loops are not supported\nuse a macro that calls itself");
  EXPECT_EQ(refusal("{% endif %}"), "t.jinja:1: {% endif %} ends nothing\n");
  EXPECT_EQ(refusal("{% for x in y %}{% endif %}"), "t.jinja:1: {% endif %} where {% endfor %} is expected\n");
  EXPECT_EQ(refusal("{{ 'a }}"), "t.jinja:1: a text has no end\nclose it with '");
  EXPECT_EQ(refusal("{{ a"), "t.jinja:1: a tag has no end\nclose it with }}");
  EXPECT_EQ(refusal("{{ f(*x) }}"), "t.jinja:1: arguments with * are not supported\nwrite them out");
  EXPECT_EQ(refusal("{{ a ? b }}"), "t.jinja:1: unexpected character '?'\n");
  EXPECT_EQ(refusal("{% break %}"), "t.jinja:1: break outside of a loop\n");
  EXPECT_EQ(refusal("\xff"), "t.jinja: byte 0xff is not UTF-8\nsave it as UTF-8");
}

TEST(ChatTemplate, FailuresHaveTheirLine) {
  EXPECT_EQ(refusal("x\n{{ missing.name }}"), "t.jinja:2: 'missing' is undefined\n");
  EXPECT_EQ(refusal("{{ missing() }}"), "t.jinja:1: 'missing' is undefined\n");
  EXPECT_EQ(refusal("{{ 1 + 'a' }}"), "t.jinja:1: a int + a str\n");
  EXPECT_EQ(refusal("{{ 1 // 0 }}"), "t.jinja:1: division by zero\n");
  EXPECT_EQ(refusal("{{ messages.append(1) }}"), "t.jinja:1: 'append, which would change a list,' is undefined\n");
  EXPECT_EQ(refusal("{{ messages.__class__ }}"), "t.jinja:1: the attribute '__class__' is not for templates\n");
  EXPECT_EQ(refusal("{% set messages.x = 1 %}"),
            "t.jinja:1: 'messages' is no namespace: only those have attributes that can be set\n");
  EXPECT_EQ(refusal("{{ raise_exception('Speak in turns') }}"),
            "the chat template refuses these messages: Speak in turns\nwrite them as the model's template asks for");
}

// Every run ends, soon and in bounded memory.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const auto loops = [](int depth) {
    std::string text = "x";
    for (int i = 0; i < depth; ++i) text = "{% for a in range(1000) %}" + text + "{% endfor %}";
    return text;
  };
  EXPECT_EQ(refusal(loops(4)), "t.jinja:1: the template takes more than 1000000 steps\n");
  EXPECT_EQ(
      refusal("{% set n = namespace(t='aaaaaaaa') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}"),
      "t.jinja:1: the template makes more than 67108864 bytes of text\n");
  EXPECT_EQ(refusal("{{ 'abc' * 999999999999 }}"), "t.jinja:1: the template makes more than 67108864 bytes of text\n");
  EXPECT_EQ(refusal("{{ [1, 2] * 999999999999 }}"), "t.jinja:1: the template takes more than 1000000 steps\n");
  EXPECT_EQ(refusal("{{ range(999999999) }}"), "t.jinja:1: range of more than 100000 numbers\n");
  EXPECT_EQ(refusal("{{ 9223372036854775807 }}"), "t.jinja:1: the number 9223372036854775807 is too large\n");
  EXPECT_EQ(refusal("{{ 999999999999 * 999999999999 }}"), "t.jinja:1: an integer is too large\n");
  EXPECT_EQ(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "t.jinja:1: the template calls itself too deeply\n");
  EXPECT_EQ(refusal("{{ " + std::string(1000, '(') + std::string(1000, ')') + " }}"),
            "t.jinja:1: the template is nested too deeply\n");
  EXPECT_EQ(refusal("{{ " + std::string(100000, '-') + "1 }}"), "t.jinja:1: the template is nested too deeply\n");
  std::string ifs;
  for (int i = 0; i < 1000; ++i) ifs += "{% if a %}";
  EXPECT_EQ(refusal(ifs), "t.jinja:1: the template is nested too deeply\n");
  EXPECT_EQ(refusal(std::string((1 << 20) + 1, 'x')), "t.jinja has 1048577 bytes\nchat templates have at most 1048576");
}

TEST(ChatTemplate, ScopesAreThoseOfJinja) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"), "221");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}"),
            "3");
  EXPECT_EQ(render("{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
  EXPECT_EQ(render("{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b=3) }}"), "1-2 1-3");
}

}  // namespace chat_template_test
}  // namespace orthant
