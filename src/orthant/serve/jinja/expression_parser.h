// The expressions of chat templates, read from tokens with the precedence that Jinja has.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/serve/jinja/lexer.h"
#include "orthant/serve/jinja/tree.h"

namespace orthant::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, std::string source)
      : tokens_(std::move(tokens)), source_(std::move(source)) {}

 protected:
  // Counts how deep the parser is in itself.
  class Depth {
   public:
    Depth(ExpressionParser& parser, int most);
    ~Depth() { --parser_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  static std::string shown(const Token& token);
  [[noreturn]] void fail(const std::string& message, std::string remedy = {}) const;

  // One expression, or several with commas, which make a tuple.
  ExpressionPtr tuple(bool with_choice = true);
  ExpressionPtr expression();
  // `inner` through the filters and tests that follow.
  ExpressionPtr filters(ExpressionPtr inner);

 private:
  using Node = std::unique_ptr<Expression>;
  using Rule = ExpressionPtr (ExpressionParser::*)();

  Node make(Expression::Kind kind, ExpressionPtr first = nullptr, ExpressionPtr second = nullptr) const;
  // Adds a part, which may be null.
  void add(Expression& whole, ExpressionPtr part) const;
  void add_named(Expression& whole, std::string name, ExpressionPtr part) const;
  ExpressionPtr chain(Rule inner, Expression::Kind kind, std::vector<std::string_view> signs);
  ExpressionPtr words(Rule inner, Expression::Kind kind, std::string_view word);
  ExpressionPtr any();
  ExpressionPtr all();
  ExpressionPtr negated();
  ExpressionPtr compared();
  ExpressionPtr sum();
  ExpressionPtr joined();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary() { return unary(true); }
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr bracketed();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr inner);
  ExpressionPtr subscript(ExpressionPtr inner);
  void arguments(Expression& call);
  ExpressionPtr filter(ExpressionPtr inner);
  ExpressionPtr test(ExpressionPtr inner);

  std::vector<Token> tokens_;
  std::string source_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace orthant::jinja
