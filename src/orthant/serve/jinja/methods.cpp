// Attributes, items and methods of values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments, Budget& budget);
using Methods = std::map<std::string, Method, std::less<>>;

constexpr std::array<std::string_view, 15> kChanging = {"append",  "extend", "insert",  "remove",  "pop",
                                                        "clear",   "sort",   "reverse", "update",  "setdefault",
                                                        "popitem", "copy",   "add",     "discard", "fromkeys"};

Value texts(const std::vector<std::string_view>& parts, Budget& budget) {
  budget.step(parts.size() / 4);
  std::vector<Value> items;
  for (const auto part : parts) items.push_back(Value::text(std::string(part)));
  return Value::list(std::move(items));
}

Value new_text(std::string text, Budget& budget) {
  budget.bytes(text.size());
  return Value::text(std::move(text));
}

Value stripped(const Value& self, const Arguments& a, Budget& b, Ends ends) {
  const auto* characters = a.find(0, "chars");
  const auto* chosen = characters && !characters->is_none() ? &text_of(*characters, "strip") : nullptr;
  return new_text(std::string(strip(*self.as_text(), ends, chosen)), b);
}

Value cut(const Value& self, const Arguments& a, Budget& b, bool reverse) {
  const auto* separator = a.find(0, "sep");
  const auto* most = a.find(1, "maxsplit");
  const auto* chosen = separator && !separator->is_none() ? &text_of(*separator, "split") : nullptr;
  if (chosen && chosen->empty()) throw Problem{"split at an empty text"};
  b.bytes(self.as_text()->size());
  if (chosen) b.search(*self.as_text(), *chosen);
  return texts(split(*self.as_text(), chosen, most ? integer_of(*most, "maxsplit") : -1, reverse), b);
}

bool has_end(const Value& self, const Arguments& a, Budget& b, bool begin) {
  const auto* parts = a.find(0, "prefix");
  if (!parts) throw Problem{"startswith and endswith take a text"};
  b.walk(*parts);
  const auto matches = [&](const Value& part) {
    const auto& text = text_of(part, "startswith");
    return begin ? self.as_text()->starts_with(text) : self.as_text()->ends_with(text);
  };
  return parts->as_list() ? std::ranges::any_of(parts->as_list()->items, matches) : matches(*parts);
}

Value replaced(const Value& self, const Arguments& a, Budget& b) {
  if (a.positional.size() < 2) throw Problem{"replace takes two texts"};
  Arguments all{{self}, a.named};
  all.positional.insert(all.positional.end(), a.positional.begin(), a.positional.end());
  text_of(a.positional[0], "replace");
  text_of(a.positional[1], "replace");
  return apply_filter("replace", all, b);
}

Value found(const Value& self, const Arguments& a, Budget& b, bool reverse) {
  const auto& part = text_of(*a.find(0, "sub"), "find");
  b.search(*self.as_text(), part);
  const auto at = reverse ? self.as_text()->rfind(part) : self.as_text()->find(part);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(num_characters(std::string_view(*self.as_text()).substr(0, at)));
}

Value joined(const Value& self, const Arguments& a, Budget& b) {
  if (a.positional.empty()) throw Problem{"join takes a list"};
  for (const auto& item : items_of(a.positional[0], b)) text_of(item, "join");
  return apply_filter("join", {{a.positional[0], self}, {}}, b);
}

Value without(const Value& self, const Arguments& a, Budget& b, bool begin) {
  const auto& part = text_of(*a.find(0, "prefix"), "removeprefix");
  const std::string_view text = *self.as_text();
  if (begin && text.starts_with(part)) return new_text(std::string(text.substr(part.size())), b);
  if (!begin && text.ends_with(part)) return new_text(std::string(text.substr(0, text.size() - part.size())), b);
  return self;
}

Value partitioned(const Value& self, const Arguments& a, Budget& b, bool reverse) {
  const auto& separator = text_of(*a.find(0, "sep"), "partition");
  const auto& text = *self.as_text();
  b.search(text, separator);
  b.bytes(text.size());
  const auto at = reverse ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const auto none = Value::text("");
    return reverse ? Value::tuple({none, none, self}) : Value::tuple({self, none, none});
  }
  return Value::tuple(
      {Value::text(text.substr(0, at)), Value::text(separator), Value::text(text.substr(at + separator.size()))});
}

template <class Predicate>
Value every(const Value& self, const Predicate& predicate) {
  return Value::boolean(!self.as_text()->empty() && std::ranges::all_of(*self.as_text(), predicate));
}

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

const Methods& text_methods() {
  using V = const Value&;
  using A = const Arguments&;
  using B = Budget&;
  static const Methods kMethods = {
      {"strip", [](V v, A a, B b) { return stripped(v, a, b, Ends::both); }},
      {"lstrip", [](V v, A a, B b) { return stripped(v, a, b, Ends::left); }},
      {"rstrip", [](V v, A a, B b) { return stripped(v, a, b, Ends::right); }},
      {"split", [](V v, A a, B b) { return cut(v, a, b, false); }},
      {"rsplit", [](V v, A a, B b) { return cut(v, a, b, true); }},
      {"splitlines",
       [](V v, A, B b) {
         b.bytes(v.as_text()->size());
         return texts(split_lines(*v.as_text()), b);
       }},
      {"startswith", [](V v, A a, B b) { return Value::boolean(has_end(v, a, b, true)); }},
      {"endswith", [](V v, A a, B b) { return Value::boolean(has_end(v, a, b, false)); }},
      {"upper", [](V v, A, B b) { return new_text(upper(*v.as_text()), b); }},
      {"lower", [](V v, A, B b) { return new_text(lower(*v.as_text()), b); }},
      {"title", [](V v, A, B b) { return new_text(title(*v.as_text()), b); }},
      {"capitalize", [](V v, A, B b) { return new_text(capitalize(*v.as_text()), b); }},
      {"replace", replaced},
      {"find", [](V v, A a, B b) { return found(v, a, b, false); }},
      {"rfind", [](V v, A a, B b) { return found(v, a, b, true); }},
      {"count",
       [](V v, A a, B b) {
         const auto& part = text_of(*a.find(0, "sub"), "count");
         b.search(*v.as_text(), part);
         return Value::integer(count_of(*v.as_text(), part));
       }},
      {"join", joined},
      {"removeprefix", [](V v, A a, B b) { return without(v, a, b, true); }},
      {"removesuffix", [](V v, A a, B b) { return without(v, a, b, false); }},
      {"partition", [](V v, A a, B b) { return partitioned(v, a, b, false); }},
      {"rpartition", [](V v, A a, B b) { return partitioned(v, a, b, true); }},
      {"isdigit", [](V v, A, B) { return every(v, is_ascii_digit); }},
      {"isalpha", [](V v, A, B) { return every(v, is_ascii_letter); }},
      {"isalnum", [](V v, A, B) { return every(v, [](char c) { return is_ascii_letter(c) || is_ascii_digit(c); }); }},
      {"isspace",
       [](V v, A, B) { return Value::boolean(!v.as_text()->empty() && strip(*v.as_text(), Ends::both).empty()); }},
      {"isupper", [](V v, A, B b) { return Value::boolean(apply_test("upper", {{v}, {}}, b)); }},
      {"islower", [](V v, A, B b) { return Value::boolean(apply_test("lower", {{v}, {}}, b)); }}};
  return kMethods;
}

Value position_in(const Value& self, const Arguments& a) {
  const auto& items = self.as_list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *a.find(0, "value"))) return Value::integer(static_cast<std::int64_t>(i));
  }
  throw Problem{"index of what is not in the list"};
}

Value entries_of(const Value& self, Budget& budget, bool with_keys, bool with_values) {
  budget.step(self.as_dict()->entries.size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict()->entries) {
    items.push_back(!with_values ? Value::text(key) : !with_keys ? value : Value::tuple({Value::text(key), value}));
  }
  return Value::list(std::move(items));
}

Value entry_of(const Value& self, const Arguments& a) {
  const auto* key = a.find(0, "key");
  const auto* fallback = a.find(1, "default");
  const auto* value = key && key->is_text() ? self.as_dict()->find(*key->as_text()) : nullptr;
  return value ? *value : fallback ? *fallback : Value();
}

const Methods& list_methods() {
  static const Methods kMethods = {
      {"index",
       [](const Value& v, const Arguments& a, Budget& b) {
         b.walk(v);
         return position_in(v, a);
       }},
      {"count", [](const Value& v, const Arguments& a, Budget& b) {
         b.walk(v);
         return Value::integer(std::ranges::count_if(
             v.as_list()->items, [&](const Value& item) { return equal(item, *a.find(0, "value")); }));
       }}};
  return kMethods;
}

const Methods& dict_methods() {
  static const Methods kMethods = {
      {"items", [](const Value& v, const Arguments&, Budget& b) { return entries_of(v, b, true, true); }},
      {"keys", [](const Value& v, const Arguments&, Budget& b) { return entries_of(v, b, true, false); }},
      {"values", [](const Value& v, const Arguments&, Budget& b) { return entries_of(v, b, false, true); }},
      {"get", [](const Value& v, const Arguments& a, Budget& b) {
         b.step(v.as_dict()->entries.size() / 64);
         return entry_of(v, a);
       }}};
  return kMethods;
}

// Of methods that read their first argument without looking.
constexpr std::array<std::string_view, 9> kWithArgument = {
    "find", "rfind", "count", "removeprefix", "removesuffix", "partition", "rpartition", "index", "join"};

}  // namespace

Value method_of(const Value& value, const std::string& name, Budget& budget) {
  const auto* methods = value.is_text()   ? &text_methods()
                        : value.as_list() ? &list_methods()
                        : value.as_dict() ? &dict_methods()
                                          : nullptr;
  if (!methods) return Value::undefined(name);
  const auto found = methods->find(name);
  if (found != methods->end()) {
    return method(name, value, [value, &budget, name, act = found->second](const Arguments& arguments) {
      budget.step();
      if (arguments.positional.empty() && std::ranges::find(kWithArgument, name) != kWithArgument.end()) {
        throw Problem{fmt::format("{}() takes an argument", name)};
      }
      return act(value, arguments, budget);
    });
  }
  if (!value.is_text() && std::ranges::find(kChanging, name) != kChanging.end()) {
    return Value::undefined(fmt::format("{}, which would change a {},", name, value.kind()));
  }
  return Value::undefined(name);
}

namespace {

[[noreturn]] void fail_on_undefined(const Value& value) {
  throw Problem{fmt::format("'{}' is undefined", value.as_undefined()->name)};
}

void check_attribute(const std::string& name) {
  if (name.starts_with("_")) throw Problem{fmt::format("the attribute '{}' is not for templates", name)};
}

}  // namespace

Value attribute_of(const Value& value, const std::string& name, Budget& budget) {
  if (value.is_undefined()) fail_on_undefined(value);
  check_attribute(name);
  if (const auto* dict = value.as_dict()) budget.step(dict->entries.size() / 64);
  if (auto* space = value.as_namespace()) {
    const auto* found = space->values.find(name);
    return found ? *found : Value::undefined(name);
  }
  auto method = method_of(value, name, budget);
  const auto* dict = method.is_undefined() ? value.as_dict() : nullptr;
  const auto* found = dict ? dict->find(name) : nullptr;
  return found ? *found : method;
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  if (value.is_undefined()) fail_on_undefined(value);
  if (const auto* dict = value.as_dict(); dict && key.is_text()) {
    budget.step(dict->entries.size() / 64);
    if (const auto* found = dict->find(*key.as_text())) return *found;
  }
  if (key.integer() && (value.as_list() || value.is_text())) {
    const auto length = length_of(value);
    const auto index = *key.integer() < 0 ? *key.integer() + length : *key.integer();
    if (index < 0 || index >= length) return Value::undefined(fmt::format("item {}", *key.integer()));
    if (const auto* list = value.as_list()) return list->items[static_cast<std::size_t>(index)];
    budget.step(value.as_text()->size() / 64);
    return Value::text(std::string(character_at(*value.as_text(), index)));
  }
  if (key.is_text()) {
    if (value.as_namespace()) return attribute_of(value, *key.as_text(), budget);
    check_attribute(*key.as_text());
    return method_of(value, *key.as_text(), budget);
  }
  return Value::undefined("item");
}

}  // namespace orthant::jinja
