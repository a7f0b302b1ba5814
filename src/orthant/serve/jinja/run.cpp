#include "orthant/serve/jinja/run.h"

#include <fmt/format.h>

#include <cmath>

#include "orthant/base/error.h"
#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/lexer.h"
#include "orthant/serve/jinja/operators.h"
#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {
namespace {

constexpr int kDeepestRun = 600;
constexpr std::int64_t kLongestRange = 100000;

// What `loop` is inside of a loop.
struct Loop {
  const std::vector<Value>* items = nullptr;
  std::size_t index = 0;
  int depth = 1;
  std::shared_ptr<Value> last_seen = {};  // of changed(), which may be seen itself

  ~Loop() {
    if (last_seen) *last_seen = Value();
  }
};

struct Scope {
  std::shared_ptr<Scope> outer = {};
  Dict values = {};
  Loop* loop = nullptr;
};

enum class Flow { on, break_, continue_ };

class Run {
 public:
  Run(const Dict& variables, const Clock& clock) : scope_(std::make_shared<Scope>()) {
    scope_->values = globals(clock);
    scope_ = std::make_shared<Scope>(Scope{scope_});
    scope_->values = variables;
  }

  // Namespaces may hold themselves, and one another in long chains.
  ~Run() {
    for (const auto& space : spaces_) space->values = {};
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void execute(const Statements& statements) { run(statements); }
  int line() const { return line_; }
  std::string& out() { return out_; }

 private:
  class Deeper {
   public:
    explicit Deeper(Run& run) : run_(run) {
      if (++run_.depth_ > kDeepestRun) {
        --run_.depth_;
        throw Problem{"the template calls itself too deeply"};
      }
    }
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Run& run_;
  };

  Dict globals(const Clock& clock) {
    Dict all;
    all.set("raise_exception", function("raise_exception", [this](const Arguments& a) -> Value {
              throw Problem{a.positional.empty() ? "" : text_for(a.positional[0]), /*raised=*/true};
            }));
    all.set("strftime_now", function("strftime_now", [&clock](const Arguments& a) {
              if (a.positional.empty()) throw Problem{"strftime_now takes a format"};
              return Value::text(clock(text_of(a.positional[0], "strftime_now")));
            }));
    all.set("range", function("range", [this](const Arguments& a) { return range(a); }));
    all.set("namespace", function("namespace", [this](const Arguments& a) {
              auto space = std::make_shared<Namespace>();
              space->values = dict_of(a);
              spaces_.push_back(space);
              return Value(Value::Holder(std::move(space)));
            }));
    all.set("dict", function("dict", [this](const Arguments& a) { return Value::dict(dict_of(a)); }));
    return all;
  }

  Dict dict_of(const Arguments& a) {
    Dict dict;
    if (!a.positional.empty()) {
      const auto* given = a.positional[0].as_dict();
      if (!given) throw Problem{fmt::format("a dict is made of a {}", a.positional[0].kind())};
      budget_.step(given->entries.size());
      dict = *given;
    }
    for (const auto& [name, value] : a.named) set(dict, name, value);
    for (const auto& entry : dict.entries) {
      if (entry.first.starts_with("_"))
        throw Problem{fmt::format("the attribute '{}' is not for templates", entry.first)};
    }
    return dict;
  }

  Value range(const Arguments& a) {
    if (a.positional.empty()) throw Problem{"range takes an integer"};
    const bool one = a.positional.size() == 1;
    const auto begin = one ? 0 : integer_of(a.positional[0], "range");
    const auto end = integer_of(a.positional[one ? 0 : 1], "range");
    const auto step = a.positional.size() > 2 ? integer_of(a.positional[2], "range") : 1;
    if (step == 0) throw Problem{"range with a step of 0"};
    const auto span = (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
    if (span > static_cast<double>(kLongestRange)) {
      throw Problem{fmt::format("range of more than {} numbers", kLongestRange)};
    }
    std::vector<Value> items;
    auto at = begin;
    while (step > 0 ? at < end : at > end) {
      items.push_back(Value::integer(at));
      if (__builtin_add_overflow(at, step, &at)) break;
    }
    budget_.step(items.size());
    return Value::list(std::move(items));
  }

  // Scopes and names.

  class Inner {
   public:
    Inner(Run& run, std::shared_ptr<Scope> outer) : run_(run), former_(run.scope_) {
      run.scope_ = std::make_shared<Scope>(Scope{std::move(outer)});
    }
    ~Inner() { run_.scope_ = former_; }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Run& run_;
    std::shared_ptr<Scope> former_;
  };

  void set(Dict& dict, const std::string& name, const Value& value) {
    budget_.step(dict.entries.size() / 16);
    dict.set(name, value);
  }

  Value look_up(const std::string& name) {
    for (const auto* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
      budget_.step(scope->values.entries.size() / 16);
      if (const auto* found = scope->values.find(name)) return *found;
      if (scope->loop != nullptr && name == "loop") return loop_value(*scope->loop);
    }
    return Value::undefined(name);
  }

  Value loop_value(Loop& loop) {
    budget_.step(8);
    const auto& items = *loop.items;
    const auto at = loop.index;
    const auto number = [](std::size_t value) { return Value::integer(static_cast<std::int64_t>(value)); };
    Dict dict;
    dict.entries = {{"index", number(at + 1)},
                    {"index0", number(at)},
                    {"revindex", number(items.size() - at)},
                    {"revindex0", number(items.size() - at - 1)},
                    {"first", Value::boolean(at == 0)},
                    {"last", Value::boolean(at + 1 == items.size())},
                    {"length", number(items.size())},
                    {"depth", Value::integer(loop.depth)},
                    {"depth0", Value::integer(loop.depth - 1)},
                    {"previtem", at > 0 ? items[at - 1] : Value::undefined("previtem")},
                    {"nextitem", at + 1 < items.size() ? items[at + 1] : Value::undefined("nextitem")},
                    {"cycle", function("cycle",
                                       [at](const Arguments& a) {
                                         if (a.positional.empty()) throw Problem{"cycle takes values"};
                                         return a.positional[at % a.positional.size()];
                                       })},
                    {"changed", function("changed", [this, seen = loop.last_seen](const Arguments& a) {
                       for (const auto& each : a.positional) budget_.walk(each);
                       const auto now = Value::list(a.positional);
                       const bool changed = seen->is_none() || !equal(*seen, now);
                       *seen = now;
                       return Value::boolean(changed);
                     })}};
    return Value::dict(std::move(dict));
  }

  void assign(const Target& target, const Value& value) {
    if (!target.attribute.empty()) {
      auto space = look_up(target.names[0]);
      if (!space.as_namespace()) {
        throw Problem{fmt::format("'{}' is no namespace: only those have attributes that can be set", target.names[0])};
      }
      if (target.attribute.starts_with("_")) {
        throw Problem{fmt::format("the attribute '{}' is not for templates", target.attribute)};
      }
      set(space.as_namespace()->values, target.attribute, value);
    } else if (target.names.size() == 1) {
      set(scope_->values, target.names[0], value);
    } else {
      const auto items = items_of(value, budget_);
      if (items.size() != target.names.size()) {
        throw Problem{fmt::format("{} values for {} names", items.size(), target.names.size())};
      }
      for (std::size_t i = 0; i < items.size(); ++i) set(scope_->values, target.names[i], items[i]);
    }
  }

  // Statements.

  Flow run(const Statements& statements) {
    for (const auto& one : statements) {
      if (const auto flow = run(*one); flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow run(const Statement& one) {
    const Deeper deeper(*this);
    budget_.step();
    line_ = one.line;
    using Kind = Statement::Kind;
    switch (one.kind) {
      case Kind::data:
        print(one.text);
        return Flow::on;
      case Kind::print:
        print(text_for(evaluate(*one.expression)));
        return Flow::on;
      case Kind::loop:
        return loop(one);
      case Kind::branch:
        return run(evaluate(*one.expression).truthy() ? one.body : one.otherwise);
      case Kind::set:
        assign(one.target, evaluate(*one.expression));
        return Flow::on;
      case Kind::set_block:
        set_block(one);
        return Flow::on;
      case Kind::macro:
        set(scope_->values, one.text, macro(one));
        return Flow::on;
      case Kind::group: {
        const Inner inner(*this, scope_);
        return run(one.body);
      }
      case Kind::break_:
        return Flow::break_;
      case Kind::continue_:
        return Flow::continue_;
    }
    return Flow::on;
  }

  std::string text_for(const Value& value) { return jinja::printed(value, budget_); }

  void print(const std::string& text) {
    budget_.bytes(text.size());
    out_ += text;
  }

  // What `body` prints.
  std::string printed(const Statements& body) {
    std::string outer;
    out_.swap(outer);
    run(body);
    out_.swap(outer);
    return outer;
  }

  void set_block(const Statement& one) {
    std::string text;
    {
      const Inner inner(*this, scope_);
      text = printed(one.body);
    }
    block_text_ = Value::text(std::move(text));
    assign(one.target, evaluate(*one.expression));
  }

  Flow loop(const Statement& one) {
    auto items = items_of(evaluate(*one.expression), budget_);
    if (one.condition) {
      std::vector<Value> kept;
      for (const auto& item : items) {
        const Inner inner(*this, scope_);
        assign(one.target, item);
        if (evaluate(*one.condition).truthy()) kept.push_back(item);
      }
      items = std::move(kept);
    }
    Loop state{&items, 0, loop_depth_ + 1, std::make_shared<Value>()};
    bool completed = false;  // the body of an item: as Jinja has it, `else` runs also where each left early
    ++loop_depth_;
    for (; state.index < items.size(); ++state.index) {
      const Inner inner(*this, scope_);
      scope_->loop = &state;
      assign(one.target, items[state.index]);
      const auto flow = run(one.body);
      scope_->loop = nullptr;  // a macro that was made here may outlive it
      if (flow == Flow::break_) break;
      if (flow == Flow::on) completed = true;
    }
    --loop_depth_;
    if (completed) return Flow::on;
    const Inner inner(*this, scope_);
    return run(one.otherwise);
  }

  Value macro(const Statement& one) {
    return function(one.text, [this, &one, outer = std::weak_ptr<Scope>(scope_)](const Arguments& a) {
      const auto home = outer.lock();
      if (!home) throw Problem{fmt::format("the macro '{}' is called outside of where it was made", one.text)};
      const Deeper deeper(*this);
      const Inner inner(*this, home);
      if (a.positional.size() > one.parameters.size()) {
        throw Problem{fmt::format("macro '{}' takes {} arguments", one.text, one.parameters.size())};
      }
      for (const auto& [name, value] : a.named) {
        if (std::ranges::none_of(one.parameters, [&](const auto& each) { return each.first == name; })) {
          throw Problem{fmt::format("macro '{}' has no argument '{}'", one.text, name)};
        }
      }
      for (std::size_t i = 0; i < one.parameters.size(); ++i) {
        const auto& [name, fallback] = one.parameters[i];
        const auto* given = a.find(i, name);
        set(scope_->values, name, given ? *given : fallback ? evaluate(*fallback) : Value::undefined(name));
      }
      return Value::text(printed(one.body));
    });
  }

  // Expressions.

  Value evaluate(const Expression& one) {
    const Deeper deeper(*this);
    budget_.step();
    line_ = one.line;
    using Kind = Expression::Kind;
    const auto part = [&](std::size_t i) { return evaluate(*one.parts[i]); };
    switch (one.kind) {
      case Kind::constant:
        return one.value;
      case Kind::name:
        return one.word.empty() ? block_text_ : look_up(one.word);
      case Kind::list:
        return Value::list(values_of(one, 0));
      case Kind::tuple:
        return Value::tuple(values_of(one, 0));
      case Kind::dict:
        return dict(one);
      case Kind::attribute:
        return attribute_of(part(0), one.word, budget_);
      case Kind::item:
        return item(part(0), part(1));
      case Kind::slice:
        return slice(one);
      case Kind::call:
        return call(one);
      case Kind::filter:
        return apply_filter(one.word, arguments(one, 0), budget_);
      case Kind::test:
        return Value::boolean(apply_test(one.word, arguments(one, 0), budget_));
      case Kind::choose:
        if (part(0).truthy()) return part(1);
        return one.parts[2] ? part(2) : Value::undefined("value of an if without else");
      case Kind::all: {
        auto left = part(0);
        return left.truthy() ? part(1) : left;
      }
      case Kind::any: {
        auto left = part(0);
        return left.truthy() ? left : part(1);
      }
      case Kind::negated:
        return Value::boolean(!part(0).truthy());
      case Kind::compared:
        return compared(one);
      case Kind::joined:
        return joined(one);
      case Kind::signed_:
        return signed_number(one.word, part(0));
      case Kind::computed:
        return computed(one.word, part(0), part(1), budget_);
    }
    return {};
  }

  std::vector<Value> values_of(const Expression& one, std::size_t first) {
    std::vector<Value> values;
    for (auto i = first; i < one.parts.size(); ++i) values.push_back(evaluate(*one.parts[i]));
    return values;
  }

  Arguments arguments(const Expression& one, std::size_t first) {
    Arguments all{values_of(one, first), {}};
    for (const auto& [name, value] : one.named) all.named.emplace_back(name, evaluate(*value));
    return all;
  }

  Value dict(const Expression& one) {
    Dict made;
    for (std::size_t i = 0; i < one.parts.size(); i += 2) {
      const auto key = evaluate(*one.parts[i]);
      if (!key.is_text()) throw Problem{fmt::format("a key of a dict is a {}: only texts are supported", key.kind())};
      set(made, *key.as_text(), evaluate(*one.parts[i + 1]));
    }
    return Value::dict(std::move(made));
  }

  Value item(const Value& value, const Value& key) { return item_of(value, key, budget_); }

  Value slice(const Expression& one) {
    const auto value = evaluate(*one.parts[0]);
    std::optional<std::int64_t> bounds[3];
    for (std::size_t i = 0; i < 3; ++i) {
      if (!one.parts[i + 1]) continue;
      const auto bound = evaluate(*one.parts[i + 1]);
      if (!bound.is_none()) bounds[i] = std::clamp<std::int64_t>(integer_of(bound, "a slice"), -(1LL << 40), 1LL << 40);
    }
    const auto step = bounds[2].value_or(1);
    if (step == 0) throw Problem{"a slice with a step of 0"};
    if (value.is_undefined()) throw Problem{fmt::format("'{}' is undefined", value.as_undefined()->name)};
    if (!value.is_text() && !value.as_list()) throw Problem{fmt::format("a slice of a {}", value.kind())};
    if (const auto* text = value.as_text()) return slice_of_text(*text, bounds, step);
    const auto items = items_of(value, budget_);
    const auto part = slice_of(static_cast<std::int64_t>(items.size()), bounds[0] ? &*bounds[0] : nullptr,
                               bounds[1] ? &*bounds[1] : nullptr, step);
    std::vector<Value> chosen;
    for (std::int64_t i = 0; i < part.count; ++i) {
      chosen.push_back(items[static_cast<std::size_t>(part.begin + i * part.step)]);
    }
    return value.as_list()->is_tuple ? Value::tuple(std::move(chosen)) : Value::list(std::move(chosen));
  }

  Value slice_of_text(const std::string& text, const std::optional<std::int64_t> (&bounds)[3], std::int64_t step) {
    budget_.step(text.size() / 16);
    const auto characters = characters_of(text);
    const auto part = slice_of(static_cast<std::int64_t>(characters.size()), bounds[0] ? &*bounds[0] : nullptr,
                               bounds[1] ? &*bounds[1] : nullptr, step);
    std::string chosen;
    for (std::int64_t i = 0; i < part.count; ++i) {
      chosen += characters[static_cast<std::size_t>(part.begin + i * part.step)];
    }
    budget_.bytes(chosen.size());
    return Value::text(std::move(chosen));
  }

  Value call(const Expression& one) {
    const auto called = evaluate(*one.parts[0]);
    auto given = arguments(one, 1);
    line_ = one.line;
    if (called.is_undefined()) throw Problem{fmt::format("'{}' is undefined", called.as_undefined()->name)};
    if (!called.as_function()) throw Problem{fmt::format("a {} is called", called.kind())};
    return called.as_function()->call(given);
  }

  Value compared(const Expression& one) {
    auto left = evaluate(*one.parts[0]);
    for (std::size_t i = 0; i < one.words.size(); ++i) {
      auto right = evaluate(*one.parts[i + 1]);
      if (!holds(one.words[i], left, right, budget_)) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  Value joined(const Expression& one) {
    std::string text;
    for (const auto& value : values_of(one, 0)) {
      const auto part = text_for(value);
      budget_.bytes(part.size());
      text += part;
    }
    return Value::text(std::move(text));
  }

  Budget budget_;
  std::vector<std::shared_ptr<Namespace>> spaces_;
  std::shared_ptr<Scope> scope_;
  std::string out_;
  Value block_text_;  // what the filters of a set block are applied to
  int line_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

std::string run_template(const Statements& statements, const std::string& source, const Dict& variables,
                         const Clock& clock) {
  Run run(variables, clock);
  try {
    run.execute(statements);
  } catch (const Problem& problem) {
    if (problem.raised) {
      throw DataError(fmt::format("the chat template refuses these messages: {}", problem.message),
                      {.remedy = "write them as the model's template asks for"});
    }
    fail_template(source, run.line(), problem.message);
  }
  return std::move(run.out());
}

}  // namespace orthant::jinja
