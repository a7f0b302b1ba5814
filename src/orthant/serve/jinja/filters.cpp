#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {
namespace {

using Filter = Value (*)(const Arguments&, Budget&);

const Value& subject(const Arguments& arguments) {
  return arguments.positional.front();
}

Value made_text(std::string text, Budget& budget) {
  budget.bytes(text.size());
  return Value::text(std::move(text));
}

Value upper_filter(const Arguments& a, Budget& b) {
  return made_text(upper(printed(subject(a), b)), b);
}
Value lower_filter(const Arguments& a, Budget& b) {
  return made_text(lower(printed(subject(a), b)), b);
}
Value capitalize_filter(const Arguments& a, Budget& b) {
  return made_text(capitalize(printed(subject(a), b)), b);
}
Value string_filter(const Arguments& a, Budget& b) {
  return made_text(printed(subject(a), b), b);
}
Value same_filter(const Arguments& a, Budget&) {
  return subject(a);
}
Value list_filter(const Arguments& a, Budget& b) {
  return Value::list(items_of(subject(a), b));
}
Value length_filter(const Arguments& a, Budget&) {
  return Value::integer(length_of(subject(a)));
}

// Words begin after white space and opening brackets.
Value title_filter(const Arguments& a, Budget& b) {
  const auto text = printed(subject(a), b);
  b.step(text.size() / 16);
  std::string out;
  bool begins = true;
  for (const auto character : characters_of(text)) {
    const std::string one(character);
    out += begins ? upper(one) : lower(one);
    begins = strip(one, Ends::both).empty() || std::string_view("-({[<").find(one) != std::string_view::npos;
  }
  return made_text(out, b);
}

Value trim_filter(const Arguments& a, Budget& b) {
  const auto* characters = a.find(1, "chars");
  const auto text = printed(subject(a), b);
  const auto* chosen = characters && !characters->is_none() ? &text_of(*characters, "trim") : nullptr;
  return made_text(std::string(strip(text, Ends::both, chosen)), b);
}

Value default_filter(const Arguments& a, Budget&) {
  const auto* fallback = a.find(1, "default_value");
  const auto* falsy_too = a.find(2, "boolean");
  const bool missing = subject(a).is_undefined() || (falsy_too && falsy_too->truthy() && !subject(a).truthy());
  if (!missing) return subject(a);
  return fallback ? *fallback : Value::text("");
}

Value tojson_filter(const Arguments& a, Budget& b) {
  JsonStyle style;
  if (const auto* ascii = a.find(1, "ensure_ascii")) style.ensure_ascii = ascii->truthy();
  if (const auto* indent = a.find(2, "indent"); indent && !indent->is_none()) {
    style.indent =
        indent->is_text()
            ? *indent->as_text()
            : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_of(*indent, "indent"), 0, 64)),
                          ' ');
  }
  if (const auto* separators = a.find(3, "separators"); separators && !separators->is_none()) {
    const auto pair = items_of(*separators, b);
    if (pair.size() != 2) throw Problem{"separators of tojson are two texts"};
    style.separators = {text_of(pair[0], "separators"), text_of(pair[1], "separators")};
  }
  if (const auto* sort = a.find(4, "sort_keys")) style.sort_keys = sort->truthy();
  return Value::text(to_json(subject(a), style, b));
}

Value attribute_path(const Value& value, const Value& path, Budget& budget) {
  if (path.integer()) return item_of(value, path, budget);
  static const std::string kDot = ".";
  auto found = value;
  for (const auto part : split(text_of(path, "attribute"), &kDot, -1, false)) {
    found = item_of(found, Value::text(std::string(part)), budget);
  }
  return found;
}

Value join_filter(const Arguments& a, Budget& b) {
  const auto* separator = a.find(1, "d");
  const auto* attribute = a.find(2, "attribute");
  const auto between = separator ? printed(*separator, b) : "";
  std::string out;
  bool first = true;
  for (const auto& item : items_of(subject(a), b)) {
    const auto text = printed(attribute ? attribute_path(item, *attribute, b) : item, b);
    b.step();
    b.bytes(text.size() + between.size());
    if (!std::exchange(first, false)) out += between;
    out += text;
  }
  return made_text(std::move(out), b);
}

Value replace_filter(const Arguments& a, Budget& b) {
  const auto* from = a.find(1, "old");
  const auto* to = a.find(2, "new");
  const auto* most = a.find(3, "count");
  if (!from || !to) throw Problem{"replace takes two texts"};
  const auto text = printed(subject(a), b);
  const auto part = printed(*from, b);
  const auto other = printed(*to, b);
  b.search(text, part);
  b.bytes(text.size() + static_cast<std::size_t>(count_of(text, part)) * other.size());
  return Value::text(replace_parts(text, part, other, most && !most->is_none() ? integer_of(*most, "count") : -1));
}

Value first_filter(const Arguments& a, Budget& b) {
  if (subject(a).is_text() && subject(a).truthy())
    return Value::text(std::string(character_at(*subject(a).as_text(), 0)));
  const auto items = items_of(subject(a), b);
  return items.empty() ? Value::undefined("first item") : items.front();
}

Value last_filter(const Arguments& a, Budget& b) {
  const auto items = items_of(subject(a), b);
  return items.empty() ? Value::undefined("last item") : items.back();
}

Value int_filter(const Arguments& a, Budget&) {
  const auto* fallback = a.find(1, "default");
  if (const auto value = subject(a).integer()) return Value::integer(*value);
  if (const auto value = subject(a).number(); value && std::fabs(*value) < 9e18) {
    return Value::integer(static_cast<std::int64_t>(*value));
  }
  if (const auto* text = subject(a).as_text()) {
    const std::string digits(strip(*text, Ends::both));
    char* end = nullptr;
    const auto value = std::strtod(digits.c_str(), &end);
    if (!digits.empty() && *end == '\0' && std::fabs(value) < 9e18) {
      return Value::integer(static_cast<std::int64_t>(value));
    }
  }
  return fallback ? *fallback : Value::integer(0);
}

Value float_filter(const Arguments& a, Budget&) {
  const auto* fallback = a.find(1, "default");
  if (const auto value = subject(a).number()) return Value::real(*value);
  if (const auto* text = subject(a).as_text()) {
    const std::string digits(strip(*text, Ends::both));
    char* end = nullptr;
    const auto value = std::strtod(digits.c_str(), &end);
    if (!digits.empty() && *end == '\0') return Value::real(value);
  }
  return fallback ? *fallback : Value::real(0);
}

Value items_filter(const Arguments& a, Budget& b) {
  std::vector<Value> items;
  if (subject(a).is_undefined()) return Value::list({});
  const auto* dict = subject(a).as_dict();
  if (!dict) throw Problem{fmt::format("items of a {}", subject(a).kind())};
  b.step(dict->entries.size());
  for (const auto& [key, value] : dict->entries) items.push_back(Value::tuple({Value::text(key), value}));
  return Value::list(std::move(items));
}

// Texts are compared without case unless asked otherwise.
Value sort_key(const Value& value, bool with_case, Budget& budget) {
  return with_case ? value : without_case(value, budget);
}

// Equal ones keep their order. A key takes part in some tens of comparisons.
std::vector<Value> sorted(const std::vector<Value>& items, const std::function<Value(const Value&)>& key, bool reverse,
                          Budget& budget) {
  std::vector<std::pair<Value, std::size_t>> order;
  for (std::size_t i = 0; i < items.size(); ++i) {
    order.emplace_back(key(items[i]), i);
    budget.step(16 + order.back().first.extent().size / 32);
  }
  std::sort(order.begin(), order.end(), [&](const auto& left, const auto& right) {
    const auto sign = compare(left.first, right.first);
    return sign == 0 ? left.second < right.second : (sign < 0) != reverse;
  });
  std::vector<Value> out;
  for (const auto& entry : order) out.push_back(items[entry.second]);
  return out;
}

Value sort_filter(const Arguments& a, Budget& b) {
  const auto* reverse = a.find(1, "reverse");
  const auto* with_case = a.find(2, "case_sensitive");
  const auto* attribute = a.find(3, "attribute");
  const auto key = [&](const Value& item) {
    return sort_key(attribute ? attribute_path(item, *attribute, b) : item, with_case && with_case->truthy(), b);
  };
  return Value::list(sorted(items_of(subject(a), b), key, reverse && reverse->truthy(), b));
}

Value dictsort_filter(const Arguments& a, Budget& b) {
  const auto* with_case = a.find(1, "case_sensitive");
  const auto* by = a.find(2, "by");
  const auto* reverse = a.find(3, "reverse");
  const auto items = items_of(items_filter(Arguments{{subject(a)}, {}}, b), b);
  const std::size_t place = by && equal(*by, Value::text("value")) ? 1 : 0;
  const auto key = [&](const Value& item) {
    return sort_key(item.as_list()->items[place], with_case && with_case->truthy(), b);
  };
  return Value::list(sorted(items, key, reverse && reverse->truthy(), b));
}

Value reverse_filter(const Arguments& a, Budget& b) {
  auto items = items_of(subject(a), b);
  std::ranges::reverse(items);
  if (!subject(a).is_text()) return Value::list(std::move(items));
  std::string out;
  for (const auto& item : items) out += *item.as_text();
  return made_text(std::move(out), b);
}

Value unique_filter(const Arguments& a, Budget& b) {
  std::vector<Value> kept;
  std::vector<Value> keys;
  for (const auto& item : items_of(subject(a), b)) {
    const auto key = without_case(item, b);
    b.step(keys.size() + 1 + keys.size() * (key.extent().size / 1024));
    if (std::ranges::any_of(keys, [&](const Value& other) { return equal(key, other); })) continue;
    kept.push_back(item);
    keys.push_back(key);
  }
  return Value::list(std::move(kept));
}

Value indent_filter(const Arguments& a, Budget& b) {
  const auto* width = a.find(1, "width");
  const auto* first = a.find(2, "first");
  const auto* blank = a.find(3, "blank");
  const auto spaces = width && !width->is_text() ? std::clamp<std::int64_t>(integer_of(*width, "indent"), 0, 1000) : 4;
  const auto indent =
      width && width->is_text() ? *width->as_text() : std::string(static_cast<std::size_t>(spaces), ' ');
  const auto text = printed(subject(a), b) + "\n";
  std::string out;
  bool begins = true;
  for (const auto line : split_lines(text)) {
    b.bytes(line.size() + indent.size());
    if (!begins) out += '\n';
    const bool indented = begins ? first && first->truthy() : !line.empty() || (blank && blank->truthy());
    if (indented) out += indent;
    out += line;
    begins = false;
  }
  return Value::text(std::move(out));
}

Value escape_filter(const Arguments& a, Budget& b) {
  std::string out;
  for (const char letter : printed(subject(a), b)) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += letter;
    }
  }
  return made_text(std::move(out), b);
}

Value abs_filter(const Arguments& a, Budget&) {
  if (const auto value = subject(a).integer()) {
    if (*value == INT64_MIN) throw Problem{"an integer is too large"};
    return Value::integer(*value < 0 ? -*value : *value);
  }
  if (const auto value = subject(a).number()) return Value::real(std::fabs(*value));
  throw Problem{fmt::format("abs of a {}", subject(a).kind())};
}

Value round_filter(const Arguments& a, Budget&) {
  const auto* precision = a.find(1, "precision");
  const auto* method = a.find(2, "method");
  const auto value = subject(a).number();
  if (!value) throw Problem{fmt::format("round of a {}", subject(a).kind())};
  const auto scale = std::pow(10.0, precision ? static_cast<double>(integer_of(*precision, "precision")) : 0.0);
  const auto how = method ? text_of(*method, "method") : "common";
  const auto scaled = *value * scale;
  return Value::real((how == "ceil"    ? std::ceil(scaled)
                      : how == "floor" ? std::floor(scaled)
                                       : std::nearbyint(scaled)) /
                     scale);
}

Value sum_filter(const Arguments& a, Budget& b) {
  const auto* attribute = a.find(1, "attribute");
  std::int64_t whole = 0;
  double real = 0;
  bool is_real = false;
  for (const auto& item : items_of(subject(a), b)) {
    const auto value = attribute ? attribute_path(item, *attribute, b) : item;
    if (!value.is_number()) throw Problem{fmt::format("sum of a {}", value.kind())};
    if (value.as_real()) is_real = true;
    real += *value.number();
    if (value.integer() && __builtin_add_overflow(whole, *value.integer(), &whole)) throw Problem{"a sum is too large"};
  }
  return is_real ? Value::real(real) : Value::integer(whole);
}

Value extreme(const Arguments& a, int sign, Budget& b) {
  const auto items = items_of(subject(a), b);
  if (items.empty()) return Value::undefined("extreme");
  auto best = items.front();
  auto best_key = without_case(best, b);
  for (const auto& item : items) {
    auto key = without_case(item, b);
    b.walk(key);
    if (sign * compare(key, best_key) <= 0) continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value max_filter(const Arguments& a, Budget& b) {
  return extreme(a, 1, b);
}
Value min_filter(const Arguments& a, Budget& b) {
  return extreme(a, -1, b);
}

Value map_filter(const Arguments& a, Budget& b) {
  std::vector<Value> mapped;
  const auto* attribute = a.find(99, "attribute");
  const auto* fallback = a.find(99, "default");
  if (!attribute && a.positional.size() < 2) throw Problem{"map takes the name of a filter, or attribute=..."};
  for (const auto& item : items_of(subject(a), b)) {
    b.step();
    if (attribute) {
      const auto value = attribute_path(item, *attribute, b);
      mapped.push_back(value.is_undefined() && fallback ? *fallback : value);
      continue;
    }
    Arguments inner{{item}, a.named};
    inner.positional.insert(inner.positional.end(), a.positional.begin() + 2, a.positional.end());
    mapped.push_back(apply_filter(text_of(a.positional[1], "map"), inner, b));
  }
  return Value::list(std::move(mapped));
}

Value chosen(const Arguments& a, Budget& b, bool by_attribute, bool wanted) {
  std::vector<Value> kept;
  const std::size_t test_at = by_attribute ? 2 : 1;
  if (by_attribute && a.positional.size() < 2) throw Problem{"selectattr takes the name of an attribute"};
  for (const auto& item : items_of(subject(a), b)) {
    b.step();
    const auto value = by_attribute ? attribute_path(item, a.positional[1], b) : item;
    bool holds = value.truthy();
    if (a.positional.size() > test_at) {
      Arguments inner{{value}, {}};
      inner.positional.insert(inner.positional.end(), a.positional.begin() + static_cast<std::ptrdiff_t>(test_at) + 1,
                              a.positional.end());
      holds = apply_test(text_of(a.positional[test_at], "test"), inner, b);
    }
    if (holds == wanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value select_filter(const Arguments& a, Budget& b) {
  return chosen(a, b, false, true);
}
Value reject_filter(const Arguments& a, Budget& b) {
  return chosen(a, b, false, false);
}
Value selectattr_filter(const Arguments& a, Budget& b) {
  return chosen(a, b, true, true);
}
Value rejectattr_filter(const Arguments& a, Budget& b) {
  return chosen(a, b, true, false);
}

const std::map<std::string, Filter, std::less<>>& all_filters() {
  static const std::map<std::string, Filter, std::less<>> kFilters = {{"abs", abs_filter},
                                                                      {"capitalize", capitalize_filter},
                                                                      {"count", length_filter},
                                                                      {"d", default_filter},
                                                                      {"default", default_filter},
                                                                      {"dictsort", dictsort_filter},
                                                                      {"e", escape_filter},
                                                                      {"escape", escape_filter},
                                                                      {"first", first_filter},
                                                                      {"float", float_filter},
                                                                      {"indent", indent_filter},
                                                                      {"int", int_filter},
                                                                      {"items", items_filter},
                                                                      {"join", join_filter},
                                                                      {"last", last_filter},
                                                                      {"length", length_filter},
                                                                      {"list", list_filter},
                                                                      {"lower", lower_filter},
                                                                      {"map", map_filter},
                                                                      {"max", max_filter},
                                                                      {"min", min_filter},
                                                                      {"reject", reject_filter},
                                                                      {"rejectattr", rejectattr_filter},
                                                                      {"replace", replace_filter},
                                                                      {"reverse", reverse_filter},
                                                                      {"round", round_filter},
                                                                      {"safe", same_filter},
                                                                      {"select", select_filter},
                                                                      {"selectattr", selectattr_filter},
                                                                      {"sort", sort_filter},
                                                                      {"string", string_filter},
                                                                      {"sum", sum_filter},
                                                                      {"title", title_filter},
                                                                      {"tojson", tojson_filter},
                                                                      {"trim", trim_filter},
                                                                      {"unique", unique_filter},
                                                                      {"upper", upper_filter}};
  return kFilters;
}

}  // namespace

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const auto& entry : all_filters()) names.push_back(entry.first);
  return names;
}

Value apply_filter(std::string_view name, const Arguments& arguments, Budget& budget) {
  const auto found = all_filters().find(name);
  if (found == all_filters().end()) throw Problem{fmt::format("the filter '{}' is not supported", name)};
  return found->second(arguments, budget);
}

const std::string& text_of(const Value& value, std::string_view name) {
  if (const auto* text = value.as_text()) return *text;
  throw Problem{fmt::format("{} takes a text, not a {}", name, value.kind())};
}

std::int64_t integer_of(const Value& value, std::string_view name) {
  if (const auto number = value.integer()) return *number;
  throw Problem{fmt::format("{} takes an integer, not a {}", name, value.kind())};
}

}  // namespace orthant::jinja
