#include "orthant/serve/jinja/operators.h"

#include <fmt/format.h>

#include <cmath>

namespace orthant::jinja {
namespace {

[[noreturn]] void refuse_operands(std::string_view sign, const Value& left, const Value& right) {
  for (const auto* value : {&left, &right}) {
    if (value->is_undefined()) throw Problem{fmt::format("'{}' is undefined", value->as_undefined()->name)};
  }
  throw Problem{fmt::format("a {} {} a {}", left.kind(), sign, right.kind())};
}

std::int64_t checked(bool overflowed, std::int64_t value) {
  if (overflowed) throw Problem{"an integer is too large"};
  return value;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t value = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (std::int64_t i = 0; i < exponent; ++i) value = checked(__builtin_mul_overflow(value, base, &value), value);
  return Value::integer(value);
}

Value of_integers(std::string_view sign, std::int64_t left, std::int64_t right) {
  std::int64_t value = 0;
  if (sign == "+") return Value::integer(checked(__builtin_add_overflow(left, right, &value), value));
  if (sign == "-") return Value::integer(checked(__builtin_sub_overflow(left, right, &value), value));
  if (sign == "*") return Value::integer(checked(__builtin_mul_overflow(left, right, &value), value));
  if (sign == "**") {
    return right < 0 ? Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)))
                     : integer_power(left, right);
  }
  if (right == 0) throw Problem{"division by zero"};
  if (sign == "/") return Value::real(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) return of_integers(sign == "//" ? "-" : "*", 0, left);
  const auto rest = left % right;
  const bool below = rest != 0 && (rest < 0) != (right < 0);
  return Value::integer(sign == "//" ? left / right - (below ? 1 : 0) : rest + (below ? right : 0));
}

Value of_reals(std::string_view sign, double left, double right) {
  if (sign == "+") return Value::real(left + right);
  if (sign == "-") return Value::real(left - right);
  if (sign == "*") return Value::real(left * right);
  if (sign == "**") return Value::real(std::pow(left, right));
  if (right == 0) throw Problem{"division by zero"};
  if (sign == "/") return Value::real(left / right);
  const auto floor = std::floor(left / right);
  return Value::real(sign == "//" ? floor : left - floor * right);
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  times = std::max<std::int64_t>(0, times);
  if (const auto* text = value.as_text()) {
    if (times > 0 && text->size() > Budget::kMostBytes / static_cast<std::size_t>(times)) {
      budget.bytes(Budget::kMostBytes + 1);
    }
    const auto bytes = text->size() * static_cast<std::size_t>(times);
    budget.bytes(bytes);
    std::string out;
    out.reserve(bytes);
    if (bytes > 0) out = *text;
    while (out.size() < bytes) out.append(out, 0, bytes - out.size());  // twice as long each time
    return Value::text(std::move(out));
  }
  std::vector<Value> items;
  for (std::int64_t i = 0; i < times; ++i) {
    budget.step(value.as_list()->items.size() + 1);
    items.insert(items.end(), value.as_list()->items.begin(), value.as_list()->items.end());
  }
  return Value::list(std::move(items));
}

Value added_lists(const List& left, const List& right, Budget& budget) {
  auto items = left.items;
  budget.step(left.items.size() + right.items.size());
  items.insert(items.end(), right.items.begin(), right.items.end());
  return left.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

void pay_for_comparison(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  budget.walk(left);
  budget.walk(right);
  if (sign.ends_with("in") && left.is_text() && right.is_text()) budget.search(*right.as_text(), *left.as_text());
}

}  // namespace

Value computed(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  if (left.integer() && right.integer()) return of_integers(sign, *left.integer(), *right.integer());
  if (left.is_number() && right.is_number()) return of_reals(sign, *left.number(), *right.number());
  if (sign == "+" && left.is_text() && right.is_text()) {
    budget.bytes(left.as_text()->size() + right.as_text()->size());
    return Value::text(*left.as_text() + *right.as_text());
  }
  if (sign == "+" && left.as_list() && right.as_list() && left.as_list()->is_tuple == right.as_list()->is_tuple) {
    return added_lists(*left.as_list(), *right.as_list(), budget);
  }
  if (sign == "*" && (left.is_text() || left.as_list()) && right.integer()) {
    return repeated(left, *right.integer(), budget);
  }
  if (sign == "*" && (right.is_text() || right.as_list()) && left.integer()) {
    return repeated(right, *left.integer(), budget);
  }
  refuse_operands(sign, left, right);
}

Value signed_number(std::string_view sign, const Value& value) {
  if (value.integer()) return of_integers(sign, 0, *value.integer());
  if (value.is_number()) return Value::real(sign == "-" ? -*value.number() : *value.number());
  refuse_operands(sign, value, value);
}

bool holds(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  pay_for_comparison(sign, left, right, budget);
  if (sign == "==") return equal(left, right);
  if (sign == "!=") return !equal(left, right);
  if (sign == "in") return contains(right, left);
  if (sign == "not in") return !contains(right, left);
  for (const auto* value : {&left, &right}) {
    if (value->is_undefined()) refuse_operands(sign, left, right);
  }
  const auto order = compare(left, right);
  if (sign == "<") return order < 0;
  if (sign == "<=") return order <= 0;
  return sign == ">" ? order > 0 : order >= 0;
}

}  // namespace orthant::jinja
