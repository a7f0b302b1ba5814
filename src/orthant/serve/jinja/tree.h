// A chat template as the parser reads it. Owned by the template, never changed by a run.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orthant/serve/jinja/value.h"

namespace orthant::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    constant,   // value
    name,       // word
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value, ...
    attribute,  // parts[0].word
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]]; a part that was left out is null
    call,       // parts[0](parts[1..], named)
    filter,     // parts[0] | word(parts[1..], named)
    test,       // parts[0] is word(parts[1..])
    choose,     // parts[1] if parts[0] else parts[2], which may be null
    all,        // parts[0] and parts[1]
    any,        // parts[0] or parts[1]
    negated,    // not parts[0]
    compared,   // parts[0] words[0] parts[1] words[1] ...
    joined,     // parts[0] ~ parts[1] ~ ...
    signed_,    // word parts[0]
    computed,   // parts[0] word parts[1]
  };
  Kind kind = Kind::constant;
  int line = 0;
  int depth = 1;  // of the expressions in one another
  std::string word = {};
  Value value = {};
  std::vector<std::string> words = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
};

struct Statement;
using Statements = std::vector<std::unique_ptr<const Statement>>;

// What a value is given to: names, or `space.word` of a namespace.
struct Target {
  std::vector<std::string> names = {};
  std::string attribute = {};  // of names[0]
};

struct Statement {
  enum class Kind {
    data,       // text
    print,      // expression
    loop,       // for target in expression if condition: body, else otherwise
    branch,     // if expression: body, else otherwise; elif is a branch in otherwise
    set,        // target = expression
    set_block,  // target = what body prints, through the filters of `expression`
    macro,      // name(parameters): body
    group,      // body: {% generation %}
    break_,
    continue_,
  };
  Kind kind = Kind::data;
  int line = 0;
  std::string text = {};
  Target target = {};
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  std::vector<std::pair<std::string, ExpressionPtr>> parameters = {};  // and their defaults, which may be null
  Statements body = {};
  Statements otherwise = {};
};

}  // namespace orthant::jinja
