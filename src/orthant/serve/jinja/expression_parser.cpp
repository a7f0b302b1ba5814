#include "orthant/serve/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "orthant/base/nearest.h"
#include "orthant/serve/jinja/builtins.h"

namespace orthant::jinja {
namespace {

using TokenKind = Token::Kind;
using ExpressionKind = Expression::Kind;
constexpr int kDeepestExpression = 200;
constexpr int kDeepestTree = 600;  // chains of operators lean to one side

bool is_comparison(const Token& token) {
  for (const auto* sign : {"==", "!=", "<", "<=", ">", ">="}) {
    if (token.is_sign(sign)) return true;
  }
  return token.is_name("in");
}

}  // namespace

ExpressionParser::Depth::Depth(ExpressionParser& parser, int most) : parser_(parser) {
  if (parser_.depth_ >= most) parser_.fail("the template is nested too deeply");
  ++parser_.depth_;
}

void ExpressionParser::fail(const std::string& message, std::string remedy) const {
  fail_template(source_, here().line, message, std::move(remedy));
}

std::string ExpressionParser::shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "end of the template";
    case TokenKind::data:
      return "text";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::print_begin:
      return "'{{'";
    case TokenKind::print_end:
      return "'}}'";
    case TokenKind::text:
      return "a text";
    default:
      return fmt::format("'{}'", token.value);
  }
}

void ExpressionParser::expect_sign(std::string_view sign) {
  if (!here().is_sign(sign)) fail(fmt::format("'{}' is expected, and {} is there", sign, shown(here())));
  take();
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!here().is_name(name)) fail(fmt::format("'{}' is expected, and {} is there", name, shown(here())));
  take();
}

std::string ExpressionParser::expect_any_name() {
  if (here().kind != TokenKind::name) fail(fmt::format("a name is expected, and {} is there", shown(here())));
  return take().value;
}

ExpressionParser::Node ExpressionParser::make(ExpressionKind kind, ExpressionPtr first, ExpressionPtr second) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = here().line;
  if (first) add(*node, std::move(first));
  if (second) add(*node, std::move(second));
  return node;
}

// A tree is run and taken down by functions that call themselves as often as it is deep.
void ExpressionParser::add(Expression& whole, ExpressionPtr part) const {
  if (part) whole.depth = std::max(whole.depth, part->depth + 1);
  if (whole.depth > kDeepestTree) fail("the template is nested too deeply");
  whole.parts.push_back(std::move(part));
}

void ExpressionParser::add_named(Expression& whole, std::string name, ExpressionPtr part) const {
  add(whole, std::move(part));
  whole.named.emplace_back(std::move(name), nullptr);
  std::swap(whole.named.back().second, whole.parts.back());
  whole.parts.pop_back();
}

ExpressionPtr ExpressionParser::tuple(bool with_choice) {
  auto first = with_choice ? expression() : any();
  if (!here().is_sign(",")) return first;
  auto node = make(ExpressionKind::tuple, std::move(first));
  while (here().is_sign(",")) {
    take();
    if (here().kind == TokenKind::block_end || here().kind == TokenKind::print_end || here().is_sign(")")) break;
    add(*node, with_choice ? expression() : any());
  }
  return node;
}

ExpressionPtr ExpressionParser::expression() {
  const Depth depth(*this, kDeepestExpression);
  auto value = any();
  while (here().is_name("if")) {
    take();
    auto condition = any();
    auto node = make(ExpressionKind::choose, std::move(condition), std::move(value));
    ExpressionPtr otherwise;
    if (here().is_name("else")) {
      take();
      otherwise = expression();
    }
    add(*node, std::move(otherwise));
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::words(Rule inner, ExpressionKind kind, std::string_view word) {
  auto left = (this->*inner)();
  while (here().is_name(word)) {
    take();
    left = make(kind, std::move(left), (this->*inner)());
  }
  return left;
}

ExpressionPtr ExpressionParser::any() {
  return words(&ExpressionParser::all, ExpressionKind::any, "or");
}

ExpressionPtr ExpressionParser::all() {
  return words(&ExpressionParser::negated, ExpressionKind::all, "and");
}

ExpressionPtr ExpressionParser::negated() {
  if (!here().is_name("not")) return compared();
  const Depth depth(*this, kDeepestExpression);
  take();
  return make(ExpressionKind::negated, negated());
}

ExpressionPtr ExpressionParser::compared() {
  auto node = make(ExpressionKind::compared, sum());
  for (;;) {
    if (is_comparison(here())) {
      node->words.push_back(take().value);
    } else if (here().is_name("not") && ahead().is_name("in")) {
      take();
      take();
      node->words.emplace_back("not in");
    } else {
      break;
    }
    add(*node, sum());
  }
  return node->words.empty() ? std::move(node->parts[0]) : ExpressionPtr(std::move(node));
}

ExpressionPtr ExpressionParser::chain(Rule inner, ExpressionKind kind, std::vector<std::string_view> signs) {
  auto left = (this->*inner)();
  while (std::ranges::any_of(signs, [&](auto sign) { return here().is_sign(sign); })) {
    const auto sign = take().value;
    auto node = make(kind, std::move(left), (this->*inner)());
    node->word = sign;
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::sum() {
  return chain(&ExpressionParser::joined, ExpressionKind::computed, {"+", "-"});
}

ExpressionPtr ExpressionParser::joined() {
  auto first = product();
  if (!here().is_sign("~")) return first;
  auto node = make(ExpressionKind::joined, std::move(first));
  while (here().is_sign("~")) {
    take();
    add(*node, product());
  }
  return node;
}

ExpressionPtr ExpressionParser::product() {
  return chain(&ExpressionParser::power, ExpressionKind::computed, {"*", "/", "//", "%"});
}

ExpressionPtr ExpressionParser::power() {
  return chain(&ExpressionParser::unary, ExpressionKind::computed, {"**"});
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Depth depth(*this, kDeepestExpression);
  ExpressionPtr value;
  if (here().is_sign("-") || here().is_sign("+")) {
    const auto sign = take().value;
    auto node = make(ExpressionKind::signed_, unary(false));
    node->word = sign;
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  if (here().kind == TokenKind::name) return name_or_constant();
  if (here().kind == TokenKind::text) {
    auto node = make(ExpressionKind::constant);
    std::string text;
    while (here().kind == TokenKind::text) text += take().value;  // neighbours are one, as in Python
    node->value = Value::text(std::move(text));
    return node;
  }
  if (here().kind == TokenKind::integer || here().kind == TokenKind::real) {
    auto node = make(ExpressionKind::constant);
    const bool real = here().kind == TokenKind::real;
    const auto digits = take().value;
    if (real) {
      node->value = Value::real(std::strtod(digits.c_str(), nullptr));
    } else {
      std::int64_t number = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
      node->value = Value::integer(number);
    }
    return node;
  }
  if (here().is_sign("(")) return bracketed();
  if (here().is_sign("[")) return list();
  if (here().is_sign("{")) return dict();
  fail(fmt::format("unexpected {}", shown(here())));
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const auto& word = here().value;
  auto node = make(ExpressionKind::constant);
  if (word == "true" || word == "True" || word == "false" || word == "False") {
    node->value = Value::boolean(word == "true" || word == "True");
  } else if (word != "none" && word != "None") {
    node->kind = ExpressionKind::name;
    node->word = word;
  }
  take();
  return node;
}

ExpressionPtr ExpressionParser::bracketed() {
  take();
  if (here().is_sign(")")) {
    auto node = make(ExpressionKind::tuple);
    take();
    return node;
  }
  auto inner = tuple();
  expect_sign(")");
  return inner;
}

ExpressionPtr ExpressionParser::list() {
  auto node = make(ExpressionKind::list);
  take();
  while (!here().is_sign("]")) {
    if (!node->parts.empty()) expect_sign(",");
    if (here().is_sign("]")) break;
    add(*node, expression());
  }
  take();
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  auto node = make(ExpressionKind::dict);
  take();
  while (!here().is_sign("}")) {
    if (!node->parts.empty()) expect_sign(",");
    if (here().is_sign("}")) break;
    add(*node, expression());
    expect_sign(":");
    add(*node, expression());
  }
  take();
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr inner) {
  for (int links = 0;; ++links) {
    if (links > kDeepestExpression) fail("the template is nested too deeply");
    if (here().is_sign(".") || here().is_sign("[")) {
      inner = subscript(std::move(inner));
    } else if (here().is_sign("(")) {
      auto node = make(ExpressionKind::call, std::move(inner));
      arguments(*node);
      inner = std::move(node);
    } else {
      return inner;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr inner) {
  if (take().value == ".") {
    if (here().kind == TokenKind::integer) {
      auto index = make(ExpressionKind::constant);
      index->value = Value::integer(std::strtoll(take().value.c_str(), nullptr, 10));
      return make(ExpressionKind::item, std::move(inner), std::move(index));
    }
    auto node = make(ExpressionKind::attribute, std::move(inner));
    node->word = expect_any_name();
    return node;
  }
  ExpressionPtr begin;
  if (!here().is_sign(":")) begin = expression();
  if (!here().is_sign(":")) {
    expect_sign("]");
    return make(ExpressionKind::item, std::move(inner), std::move(begin));
  }
  auto node = make(ExpressionKind::slice, std::move(inner));
  add(*node, std::move(begin));
  for (int part = 0; part < 2; ++part) {
    ExpressionPtr value;
    if (here().is_sign(":")) {
      take();
      if (!here().is_sign(":") && !here().is_sign("]")) value = expression();
    }
    add(*node, std::move(value));
  }
  expect_sign("]");
  return node;
}

void ExpressionParser::arguments(Expression& call) {
  expect_sign("(");
  bool first = true;
  while (!here().is_sign(")")) {
    if (!std::exchange(first, false)) expect_sign(",");
    if (here().is_sign(")")) break;
    if (here().is_sign("*") || here().is_sign("**")) fail("arguments with * are not supported", "write them out");
    if (here().kind == TokenKind::name && ahead().is_sign("=")) {
      auto name = take().value;
      take();
      add_named(call, std::move(name), expression());
    } else {
      if (!call.named.empty()) fail("an argument without a name follows one with");
      add(call, expression());
    }
  }
  take();
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr inner) {
  for (int links = 0;; ++links) {
    if (links > kDeepestExpression) fail("the template is nested too deeply");
    if (here().is_sign("|")) {
      inner = filter(std::move(inner));
    } else if (here().is_name("is")) {
      inner = test(std::move(inner));
    } else if (here().is_sign("(")) {
      inner = postfix(std::move(inner));
    } else {
      return inner;
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr inner) {
  take();
  auto node = make(ExpressionKind::filter, std::move(inner));
  node->word = here().kind == TokenKind::name ? here().value : "";
  if (const auto names = filter_names(); std::ranges::find(names, node->word) == names.end()) {
    const auto near = nearest(node->word, names);
    fail(fmt::format("the filter '{}' is not supported", node->word),
         near ? fmt::format("the nearest one is '{}'", *near) : "");
  }
  take();
  if (here().is_sign("(")) arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr inner) {
  take();
  const bool negate = here().is_name("not");
  if (negate) take();
  auto node = make(ExpressionKind::test, std::move(inner));
  node->word = expect_any_name();
  if (const auto names = test_names(); std::ranges::find(names, node->word) == names.end()) {
    const auto near = nearest(node->word, names);
    fail(fmt::format("the test '{}' is not supported", node->word),
         near ? fmt::format("the nearest one is '{}'", *near) : "");
  }
  const auto is_word = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](auto word) { return here().is_name(word); });
  };
  const bool value_follows = here().kind == TokenKind::name || here().kind == TokenKind::text ||
                             here().kind == TokenKind::integer || here().kind == TokenKind::real ||
                             here().is_sign("[") || here().is_sign("{");
  if (here().is_sign("(")) {
    arguments(*node);
  } else if (is_word({"is"})) {
    fail("tests in a row", "join them with `and`");
  } else if (value_follows && !is_word({"else", "or", "and", "if", "in", "not"})) {
    add(*node, postfix(primary()));
  }
  if (!negate) return node;
  return make(ExpressionKind::negated, std::move(node));
}

}  // namespace orthant::jinja
