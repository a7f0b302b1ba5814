#include "orthant/serve/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {
namespace {

int sign_of(double difference) {
  return difference < 0 ? -1 : difference > 0 ? 1 : 0;
}

int compare_lists(const List& left, const List& right) {
  for (std::size_t i = 0; i < std::min(left.items.size(), right.items.size()); ++i) {
    if (!equal(left.items[i], right.items[i])) return compare(left.items[i], right.items[i]);
  }
  return sign_of(static_cast<double>(left.items.size()) - static_cast<double>(right.items.size()));
}

std::string join_quoted(const std::vector<Value>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) text += (i > 0 ? ", " : "") + items[i].quoted();
  return text;
}

std::string quoted_dict(const Dict& dict) {
  std::string text = "{";
  for (const auto& [key, value] : dict.entries) {
    text += (text.size() > 1 ? ", " : "") + quote_text(key) + ": " + value.quoted();
  }
  return text + "}";
}

constexpr std::uint64_t kLargest = std::uint64_t{1} << 62;

void add_part(Extent& whole, const Extent& part) {
  whole.depth = std::max(whole.depth, part.depth + 1);
  whole.size = std::min(kLargest, whole.size + part.size);
  if (whole.depth > kDeepestValue) throw Problem{fmt::format("values are nested more than {} deep", kDeepestValue)};
}

Value made_list(std::vector<Value> items, bool is_tuple) {
  Extent extent{.depth = 1};
  for (const auto& item : items) add_part(extent, item.extent());
  return Value(Value::Holder(std::make_shared<const List>(List{std::move(items), is_tuple, extent})));
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& entry : entries) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

void Dict::set(std::string_view key, Value value) {
  for (auto& entry : entries) {
    if (entry.first == key) {
      entry.second = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

Value Value::list(std::vector<Value> items) {
  return made_list(std::move(items), false);
}

Value Value::tuple(std::vector<Value> items) {
  return made_list(std::move(items), true);
}

Value Value::dict(Dict value) {
  // Two dicts are compared by looking for the keys of one among those of the other.
  const auto count = static_cast<std::uint64_t>(value.entries.size());
  value.extent = {.depth = 1, .size = 8 + count * count / 16};
  for (const auto& [key, item] : value.entries) {
    add_part(value.extent, {.depth = 0, .size = key.size() + 8});
    add_part(value.extent, item.extent());
  }
  return Value(Holder(std::make_shared<const Dict>(std::move(value))));
}

Extent Value::extent() const {
  if (const auto* list = as_list()) return list->extent;
  if (const auto* dict = as_dict()) return dict->extent;
  if (const auto* text = as_text()) return {.depth = 0, .size = text->size() + 8};
  if (const auto* made = as_function()) return {.depth = made->depth};
  return {};
}

bool Value::is_number() const {
  return number().has_value();
}

const std::string* Value::as_text() const {
  const auto* text = std::get_if<Text>(&holder_);
  return text ? text->get() : nullptr;
}

const List* Value::as_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&holder_);
  return list ? list->get() : nullptr;
}

const Dict* Value::as_dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&holder_);
  return dict ? dict->get() : nullptr;
}

Namespace* Value::as_namespace() const {
  const auto* space = std::get_if<std::shared_ptr<Namespace>>(&holder_);
  return space ? space->get() : nullptr;
}

const Function* Value::as_function() const {
  const auto* made = std::get_if<std::shared_ptr<const Function>>(&holder_);
  return made ? made->get() : nullptr;
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* value = std::get_if<std::int64_t>(&holder_)) return *value;
  if (const auto* value = as_boolean()) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* value = as_real()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

bool Value::truthy() const {
  if (is_none() || is_undefined()) return false;
  if (const auto value = number()) return *value != 0;
  if (const auto* value = as_text()) return !value->empty();
  if (const auto* value = as_list()) return !value->items.empty();
  if (const auto* value = as_dict()) return !value->entries.empty();
  return true;
}

const char* Value::kind() const {
  if (is_none()) return "None";
  if (is_undefined()) return "undefined";
  if (as_boolean()) return "bool";
  if (integer()) return "int";
  if (as_real()) return "float";
  if (is_text()) return "str";
  if (const auto* value = as_list()) return value->is_tuple ? "tuple" : "list";
  if (as_dict()) return "dict";
  return as_namespace() ? "namespace" : "function";
}

std::string Value::printed() const {
  if (const auto* value = as_text()) return *value;
  return is_undefined() ? "" : quoted();
}

std::string Value::quoted() const {
  if (is_none()) return "None";
  if (is_undefined()) return "Undefined";
  if (const auto* value = as_boolean()) return *value ? "True" : "False";
  if (const auto value = integer()) return std::to_string(*value);
  if (const auto* value = as_real()) return print_real(*value);
  if (const auto* value = as_text()) return quote_text(*value);
  if (const auto* value = as_dict()) return quoted_dict(*value);
  if (const auto* value = as_list()) {
    const auto inner = join_quoted(value->items);
    if (!value->is_tuple) return "[" + inner + "]";
    return "(" + inner + (value->items.size() == 1 ? ",)" : ")");
  }
  throw Problem{fmt::format("a {} has no text", kind())};
}

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

Value function(std::string name, std::function<Value(const Arguments&)> call) {
  return Value(Value::Holder(std::make_shared<const Function>(Function{std::move(name), std::move(call)})));
}

Value method(std::string name, const Value& self, std::function<Value(const Arguments&)> call) {
  Extent extent;
  add_part(extent, self.extent());
  return Value(
      Value::Holder(std::make_shared<const Function>(Function{std::move(name), std::move(call), extent.depth})));
}

bool equal(const Value& left, const Value& right) {
  if (left.integer() && right.integer()) return *left.integer() == *right.integer();
  if (left.is_number() && right.is_number()) return *left.number() == *right.number();
  if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
  if (left.is_undefined() || right.is_undefined()) return left.is_undefined() && right.is_undefined();
  if (left.is_text() && right.is_text()) return *left.as_text() == *right.as_text();
  if (const auto *a = left.as_list(), *b = right.as_list(); a && b) {
    if (a->is_tuple != b->is_tuple || a->items.size() != b->items.size()) return false;
    for (std::size_t i = 0; i < a->items.size(); ++i) {
      if (!equal(a->items[i], b->items[i])) return false;
    }
    return true;
  }
  if (const auto *a = left.as_dict(), *b = right.as_dict(); a && b) {
    if (a->entries.size() != b->entries.size()) return false;
    for (const auto& [key, value] : a->entries) {
      const auto* other = b->find(key);
      if (!other || !equal(value, *other)) return false;
    }
    return true;
  }
  if (left.as_namespace()) return left.as_namespace() == right.as_namespace();
  return left.as_function() != nullptr && left.as_function() == right.as_function();
}

int compare(const Value& left, const Value& right) {
  if (left.integer() && right.integer()) return *left.integer() < *right.integer() ? -1 : !equal(left, right);
  if (left.is_number() && right.is_number()) return sign_of(*left.number() - *right.number());
  if (left.is_text() && right.is_text()) return sign_of(left.as_text()->compare(*right.as_text()));
  if (const auto *a = left.as_list(), *b = right.as_list(); a && b && a->is_tuple == b->is_tuple) {
    return compare_lists(*a, *b);
  }
  throw Problem{fmt::format("a {} and a {} have no order", left.kind(), right.kind())};
}

bool contains(const Value& haystack, const Value& needle) {
  if (const auto* text = haystack.as_text()) {
    if (!needle.is_text()) throw Problem{fmt::format("a {} is looked for in a text", needle.kind())};
    return text->find(*needle.as_text()) != std::string::npos;
  }
  if (haystack.as_dict() && (needle.as_list() || needle.as_dict())) {
    throw Problem{fmt::format("a {} is looked for among the keys of a dict", needle.kind())};
  }
  if (const auto* dict = haystack.as_dict()) return needle.is_text() && dict->find(*needle.as_text()) != nullptr;
  for (const auto& item : items_of(haystack)) {
    if (equal(item, needle)) return true;
  }
  return false;
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const auto* list = value.as_list()) return list->items;
  std::vector<Value> items;
  if (const auto* dict = value.as_dict()) {
    for (const auto& entry : dict->entries) items.push_back(Value::text(entry.first));
    return items;
  }
  if (const auto* text = value.as_text()) {
    for (const auto character : characters_of(*text)) items.push_back(Value::text(std::string(character)));
    return items;
  }
  throw Problem{fmt::format("a {} has no items", value.kind())};
}

std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const auto* list = value.as_list()) return static_cast<std::int64_t>(list->items.size());
  if (const auto* dict = value.as_dict()) return static_cast<std::int64_t>(dict->entries.size());
  if (const auto* text = value.as_text()) return num_characters(*text);
  throw Problem{fmt::format("a {} has no length", value.kind())};
}

}  // namespace orthant::jinja
