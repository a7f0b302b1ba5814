#include "orthant/serve/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/serve/jinja/expression_parser.h"
#include "orthant/serve/jinja/lexer.h"

namespace orthant::jinja {
namespace {

constexpr int kDeepestStatements = 64;

class TemplateParser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Statements run() { return statements({}); }

 private:
  // Up to a block that begins with one of these words, whose name is the next token then; else to the end.
  Statements statements(const std::vector<std::string_view>& ends) {
    const Depth depth(*this, kDeepestStatements);
    Statements all;
    while (!here().is(Token::Kind::end, "")) {
      if (here().kind == Token::Kind::data) {
        auto one = make(Statement::Kind::data);
        one->text = take().value;
        all.push_back(std::move(one));
      } else if (here().kind == Token::Kind::print_begin) {
        take();
        auto one = make(Statement::Kind::print);
        one->expression = tuple();
        expect_end(Token::Kind::print_end);
        all.push_back(std::move(one));
      } else {
        take();
        if (std::ranges::any_of(ends, [&](auto word) { return here().is_name(word); })) return all;
        all.push_back(block(ends));
      }
    }
    if (!ends.empty()) fail(fmt::format("the template ends, and {{% {} %}} is missing", ends.back()));
    return all;
  }

  std::unique_ptr<Statement> make(Statement::Kind kind) const {
    auto one = std::make_unique<Statement>();
    one->kind = kind;
    one->line = here().line;
    return one;
  }

  void expect_end(Token::Kind end) {
    if (here().kind != end) fail(fmt::format("unexpected {}", shown(here())));
    take();
  }

  void end_block() { expect_end(Token::Kind::block_end); }

  void end_block(std::string_view word) {
    expect_name(word);
    end_block();
  }

  std::unique_ptr<const Statement> block(const std::vector<std::string_view>& ends) {
    if (here().kind != Token::Kind::name) fail(fmt::format("a block begins with {}", shown(here())));
    const auto word = here().value;
    if (word == "for") return loop();
    if (word == "if") return branch();
    if (word == "set") return set();
    if (word == "macro") return macro();
    if (word == "generation") return group();
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(fmt::format("{} outside of a loop", word));
      auto one = make(word == "break" ? Statement::Kind::break_ : Statement::Kind::continue_);
      take();
      end_block();
      return one;
    }
    if (word.starts_with("end") || word == "else" || word == "elif") {
      fail(ends.empty() ? fmt::format("{{% {} %}} ends nothing", word)
                        : fmt::format("{{% {} %}} where {{% {} %}} is expected", word, ends.back()));
    }
    fail(fmt::format("the block {{% {} %}} is not supported", word),
         "chat templates have for, if, set, macro, generation, break, continue and raw");
  }

  std::unique_ptr<const Statement> loop() {
    auto one = make(Statement::Kind::loop);
    take();
    one->target = target(/*with_attribute=*/false);
    expect_name("in");
    one->expression = tuple(/*with_choice=*/false);
    if (here().is_name("if")) {
      take();
      one->condition = expression();
    }
    if (here().is_name("recursive")) fail("recursive loops are not supported", "use a macro that calls itself");
    end_block();
    ++loops_;
    one->body = statements({"else", "endfor"});
    --loops_;
    if (here().is_name("else")) {
      take();
      end_block();
      one->otherwise = statements({"endfor"});
    }
    end_block("endfor");
    return one;
  }

  std::unique_ptr<const Statement> branch() {
    auto one = make(Statement::Kind::branch);
    take();
    one->expression = tuple(/*with_choice=*/true);
    end_block();
    one->body = statements({"elif", "else", "endif"});
    if (here().is_name("elif")) {
      const Depth depth(*this, kDeepestStatements);
      one->otherwise.push_back(branch());
      return one;
    }
    if (here().is_name("else")) {
      take();
      end_block();
      one->otherwise = statements({"endif"});
    }
    end_block("endif");
    return one;
  }

  std::unique_ptr<const Statement> set() {
    auto one = make(Statement::Kind::set);
    take();
    one->target = target(/*with_attribute=*/true);
    if (here().is_sign("=")) {
      take();
      one->expression = tuple();
      end_block();
      return one;
    }
    one->kind = Statement::Kind::set_block;
    auto printed = std::make_unique<Expression>();
    printed->kind = Expression::Kind::name;
    printed->line = here().line;
    one->expression = filters(std::move(printed));
    end_block();
    one->body = statements({"endset"});
    end_block("endset");
    return one;
  }

  std::unique_ptr<const Statement> macro() {
    auto one = make(Statement::Kind::macro);
    take();
    one->text = expect_any_name();
    expect_sign("(");
    while (!here().is_sign(")")) {
      if (!one->parameters.empty()) expect_sign(",");
      auto name = expect_any_name();
      ExpressionPtr fallback;
      if (here().is_sign("=")) {
        take();
        fallback = expression();
      } else if (!one->parameters.empty() && one->parameters.back().second) {
        fail("a parameter without a default follows one with");
      }
      one->parameters.emplace_back(std::move(name), std::move(fallback));
    }
    take();
    end_block();
    const int outer = std::exchange(loops_, 0);
    one->body = statements({"endmacro"});
    loops_ = outer;
    take();
    if (here().is_name(one->text)) take();
    end_block();
    return one;
  }

  // What an assistant says is marked for training; printing does not change.
  std::unique_ptr<const Statement> group() {
    auto one = make(Statement::Kind::group);
    take();
    end_block();
    one->body = statements({"endgeneration"});
    end_block("endgeneration");
    return one;
  }

  Target target(bool with_attribute) {
    Target target;
    const bool bracket = here().is_sign("(");
    if (bracket) take();
    target.names.push_back(expect_any_name());
    if (with_attribute && here().is_sign(".")) {
      take();
      target.attribute = expect_any_name();
      return target;
    }
    while (here().is_sign(",")) {
      take();
      if (here().kind == Token::Kind::name && !here().is_name("in")) target.names.push_back(expect_any_name());
    }
    if (bracket) expect_sign(")");
    return target;
  }

  int loops_ = 0;
};

}  // namespace

Statements parse_template(std::string_view text, const std::string& source) {
  return TemplateParser(cut_template(text, source), source).run();
}

}  // namespace orthant::jinja
