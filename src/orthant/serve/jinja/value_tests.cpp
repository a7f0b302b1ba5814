// `value is name`
#include <fmt/format.h>

#include <map>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& all);

const Value& other(const Arguments& all) {
  if (all.positional.size() < 2) throw Problem{"a test lacks the value to compare with"};
  return all.positional[1];
}

bool is_whole(const Value& value) {
  return value.integer() && !value.as_boolean();
}

bool is_true_or_false(const Value& value, bool wanted) {
  return value.as_boolean() && *value.as_boolean() == wanted;
}

bool has_items(const Value& value) {
  return value.is_text() || value.as_list() || value.as_dict() || value.is_undefined();
}

bool same(const Value& left, const Value& right) {
  return std::string_view(left.kind()) == right.kind() && equal(left, right);
}

using Case = std::string (*)(std::string_view);

// A text that is as it is in one case and otherwise in the other.
bool is_of_case(const Value& text, Case wanted, Case other) {
  const auto& is = *text.as_text();
  return is == wanted(is) && is != other(is);
}

std::int64_t remainder(const Value& value, const Value& divisor) {
  const auto by = integer_of(divisor, "divisibleby");
  if (by == 0) throw Problem{"division by zero"};
  if (by == -1) return 0 * integer_of(value, "divisibleby");  // the quotient of the least integer has no room
  return integer_of(value, "divisibleby") % by;
}

const std::map<std::string, Test, std::less<>>& all_tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const Test kEqual = [](V v, A a) { return equal(v, other(a)); };
  static const Test kDiffers = [](V v, A a) { return !equal(v, other(a)); };
  static const Test kLess = [](V v, A a) { return compare(v, other(a)) < 0; };
  static const Test kAtMost = [](V v, A a) { return compare(v, other(a)) <= 0; };
  static const Test kGreater = [](V v, A a) { return compare(v, other(a)) > 0; };
  static const Test kAtLeast = [](V v, A a) { return compare(v, other(a)) >= 0; };
  static const std::map<std::string, Test, std::less<>> kTests = {
      {"==", kEqual},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"!=", kDiffers},
      {"ne", kDiffers},
      {"<", kLess},
      {"lt", kLess},
      {"lessthan", kLess},
      {"<=", kAtMost},
      {"le", kAtMost},
      {">", kGreater},
      {"gt", kGreater},
      {"greaterthan", kGreater},
      {">=", kAtLeast},
      {"ge", kAtLeast},
      {"boolean", [](V v, A) { return v.as_boolean() != nullptr; }},
      {"callable", [](V v, A) { return v.as_function() != nullptr; }},
      {"defined", [](V v, A) { return !v.is_undefined(); }},
      {"divisibleby", [](V v, A a) { return remainder(v, other(a)) == 0; }},
      {"even", [](V v, A) { return remainder(v, Value::integer(2)) == 0; }},
      {"odd", [](V v, A) { return remainder(v, Value::integer(2)) != 0; }},
      {"false", [](V v, A) { return is_true_or_false(v, false); }},
      {"true", [](V v, A) { return is_true_or_false(v, true); }},
      {"float", [](V v, A) { return v.as_real() != nullptr; }},
      {"in", [](V v, A a) { return contains(other(a), v); }},
      {"integer", [](V v, A) { return is_whole(v); }},
      {"iterable", [](V v, A) { return has_items(v); }},
      {"sequence", [](V v, A) { return has_items(v); }},
      {"mapping", [](V v, A) { return v.as_dict() != nullptr; }},
      {"none", [](V v, A) { return v.is_none(); }},
      {"number", [](V v, A) { return v.is_number(); }},
      {"sameas", [](V v, A a) { return same(v, other(a)); }},
      {"string", [](V v, A) { return v.is_text(); }},
      {"undefined", [](V v, A) { return v.is_undefined(); }},
      {"lower", [](V v, A) { return is_of_case(v, lower, upper); }},
      {"upper", [](V v, A) { return is_of_case(v, upper, lower); }}};
  return kTests;
}

}  // namespace

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const auto& entry : all_tests()) names.push_back(entry.first);
  return names;
}

bool apply_test(std::string_view name, const Arguments& arguments, Budget& budget) {
  budget.step();
  const auto found = all_tests().find(name);
  if (found == all_tests().end()) throw Problem{fmt::format("the test '{}' is not supported", name)};
  const auto& value = arguments.positional.front();
  if (name == "lower" || name == "upper") {
    return found->second(Value::text(printed(value, budget)), arguments);
  }
  for (const auto& each : arguments.positional) budget.walk(each);
  const auto* text = value.as_text();
  const auto* whole = name == "in" && arguments.positional.size() > 1 ? arguments.positional[1].as_text() : nullptr;
  if (text && whole) budget.search(*whole, *text);
  return found->second(value, arguments);
}

}  // namespace orthant::jinja
