// Values of chat templates, with the meaning that Python gives them: texts are counted in characters, dicts keep their
// order, an unknown name is a value of its own. Handles: copies share lists, dicts and texts, which do not change once
// a template can see them; only namespaces do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace orthant::jinja {

// What went wrong while a template runs; whoever runs it adds the line. `raised` by the template itself.
struct Problem {
  std::string message;
  bool raised = false;
};

class Value;
struct Function;

// Lists and dicts in one another: what walks through values calls itself as often.
inline constexpr int kDeepestValue = 100;

// How deep a value is, and about how many bytes its text has: known when it is made, since what it shares with others
// it holds several times. Sizes end at 2^62.
struct Extent {
  int depth = 0;
  std::uint64_t size = 8;
};

struct Undefined {
  std::string name;  // of what is not there, for errors
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  Extent extent = {};
};

// Keys are texts, as in JSON.
struct Dict {
  std::vector<std::pair<std::string, Value>> entries;
  Extent extent = {};  // once it is a value

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};

struct Namespace {
  Dict values;
};

class Value {
 public:
  struct None {};
  using Text = std::shared_ptr<const std::string>;
  using Holder = std::variant<None, Undefined, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                              std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Function>>;

  Value() = default;
  explicit Value(Holder holder) : holder_(std::move(holder)) {}

  static Value undefined(std::string name) { return Value(Undefined{std::move(name)}); }
  static Value boolean(bool value) { return Value(Holder(value)); }
  static Value integer(std::int64_t value) { return Value(Holder(value)); }
  static Value real(double value) { return Value(Holder(value)); }
  static Value text(std::string value) { return Value(Holder(std::make_shared<const std::string>(std::move(value)))); }
  // Problem for what is nested more than kDeepestValue deep.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict value);

  bool is_none() const { return std::holds_alternative<None>(holder_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(holder_); }
  bool is_text() const { return std::holds_alternative<Text>(holder_); }
  bool is_number() const;  // booleans are numbers

  // Null where the value is of another kind.
  const std::string* as_text() const;
  const List* as_list() const;
  const Dict* as_dict() const;
  Namespace* as_namespace() const;
  const Function* as_function() const;
  const Undefined* as_undefined() const { return std::get_if<Undefined>(&holder_); }
  const bool* as_boolean() const { return std::get_if<bool>(&holder_); }
  const double* as_real() const { return std::get_if<double>(&holder_); }

  std::optional<std::int64_t> integer() const;  // of an integer or a boolean
  std::optional<double> number() const;

  Extent extent() const;
  bool truthy() const;
  const char* kind() const;  // as Python calls its type: "str", "int", ...
  // str(value) and repr(value) of Python.
  std::string printed() const;
  std::string quoted() const;

 private:
  Holder holder_;
};

// What a function was called with.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at a position or of a name; null when it was not given.
  const Value* find(std::size_t position, std::string_view name) const;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
  int depth = 0;  // of the value that it is a method of
};

Value function(std::string name, std::function<Value(const Arguments&)> call);
Value method(std::string name, const Value& self, std::function<Value(const Arguments&)> call);

// The equality of Python: numbers of all kinds compare, other kinds differ.
bool equal(const Value& left, const Value& right);
// Below 0, 0 or above as left is less, equal or greater. Problem for what has no order.
int compare(const Value& left, const Value& right);
// `needle in haystack`.
bool contains(const Value& haystack, const Value& needle);

// What a loop over the value sees: the items of a list, the keys of a dict, the characters of a text.
std::vector<Value> items_of(const Value& value);
std::int64_t length_of(const Value& value);

// Problem for what is nested too deeply.
Value from_json(const nlohmann::ordered_json& json);

}  // namespace orthant::jinja
