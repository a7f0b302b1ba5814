#include "orthant/base/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/json_convert.h"
#include "orthant/base/json_state.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

using nlohmann::json;

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// "_comment", "_comments", "_comment_lr": words for people, in any object.
bool is_comment(std::string_view key) {
  return key.starts_with("_comment");
}

}  // namespace

struct JsonReader::Scope {
  std::shared_ptr<JsonState> state;
  const json* object;  // null when the document has no such object
  std::string pointer;
  std::string path;
  std::set<std::string, std::less<>> known = {};
  std::map<std::string, std::shared_ptr<Scope>, std::less<>> opened = {};

  JsonPlace place(std::string_view key, const json& value) const {
    return {state->tree, value, child_pointer(pointer, key), child_path(path, key)};
  }
  void note(std::string_view key, std::string value, std::string origin) const {
    state->note(child_pointer(pointer, key), {child_path(path, key), std::move(value), std::move(origin)});
  }
};

JsonReader::JsonReader(const JsonDocument& document)
    : scope_(std::make_shared<Scope>(Scope{document.state_, &document.value(), "", ""})) {
  const JsonTree& tree = document.state_->tree;
  if (!tree.value->is_object()) throw_type_error({tree, *tree.value, "", ""}, "an object");
  document.state_->reading = true;
}

JsonReader::JsonReader(std::shared_ptr<Scope> scope) : scope_(std::move(scope)) {}

const json* JsonReader::lookup(std::string_view key) {
  scope_->known.emplace(key);
  if (scope_->object == nullptr) return nullptr;
  const auto found = scope_->object->find(key);
  return found == scope_->object->end() ? nullptr : &*found;
}

const json& JsonReader::lookup_required(std::string_view key, std::string_view expected) {
  if (const json* value = lookup(key)) return *value;
  std::vector<std::string> unread;
  for (auto& name : keys()) {
    if (!scope_->known.contains(name)) unread.push_back(std::move(name));
  }
  const auto near = nearest(key, unread);
  const JsonTree& tree = scope_->state->tree;
  throw_json_error(tree.options.errors,
                   fmt::format("{}: missing key {} ({})", tree.value_location(scope_->pointer),
                               child_path(scope_->path, key), expected),
                   near ? fmt::format("rename \"{}\" to \"{}\"", *near, key) : fmt::format("add \"{}\"", key));
}

template <typename T>
T JsonReader::read(std::string_view key, const json& value) {
  T out{};
  convert_json(scope_->place(key, value), out);
  scope_->note(key, dumped(value), origin(key));
  return out;
}

template <typename T>
T JsonReader::require(std::string_view key) {
  return read<T>(key, lookup_required(key, expected_text(static_cast<const T*>(nullptr))));
}

template <typename T>
T JsonReader::get(std::string_view key, const std::type_identity_t<T>& default_value) {
  if (const json* value = lookup(key)) return read<T>(key, *value);
  scope_->note(key, dumped(json(default_value)), "default");
  return default_value;
}

template <typename T>
std::optional<T> JsonReader::find(std::string_view key) {
  const json* value = lookup(key);
  if (value != nullptr && !value->is_null()) return read<T>(key, *value);
  scope_->note(key, "null", origin(key));
  return std::nullopt;
}

JsonReader JsonReader::open(std::string_view key, const json* value) {
  const auto known = scope_->opened.find(key);
  if (known != scope_->opened.end()) return JsonReader(known->second);
  if (value != nullptr && !value->is_object()) throw_type_error(scope_->place(key, *value), "an object");
  auto opened = std::make_shared<Scope>(
      Scope{scope_->state, value, child_pointer(scope_->pointer, key), child_path(scope_->path, key)});
  scope_->opened.emplace(key, opened);
  return JsonReader(std::move(opened));
}

JsonReader JsonReader::object(std::string_view key) {
  return open(key, lookup(key));
}

JsonReader JsonReader::require_object(std::string_view key) {
  return open(key, &lookup_required(key, "an object"));
}

std::vector<JsonReader> JsonReader::objects(std::string_view key) {
  std::vector<JsonReader> readers;
  const json* value = lookup(key);
  if (value == nullptr) return readers;
  if (!value->is_array()) throw_type_error(scope_->place(key, *value), "an array of objects");
  // The array is a scope of its own, so that its elements are found again and finish() reaches them.
  auto& array = scope_->opened[std::string(key)];
  if (!array) {
    array = std::make_shared<Scope>(
        Scope{scope_->state, nullptr, child_pointer(scope_->pointer, key), child_path(scope_->path, key)});
  }
  for (std::size_t i = 0; i < value->size(); ++i)
    readers.push_back(JsonReader(array).open(std::to_string(i), &(*value)[i]));
  return readers;
}

const json& JsonReader::require_raw(std::string_view key) {
  const json& value = lookup_required(key, "any value");
  scope_->note(key, dumped(value), origin(key));
  return value;
}

bool JsonReader::has(std::string_view key) const {
  return scope_->object != nullptr && scope_->object->contains(key);
}

bool JsonReader::is_null(std::string_view key) const {
  return has(key) && scope_->object->at(std::string(key)).is_null();
}

std::vector<std::string> JsonReader::keys() const {
  std::vector<std::string> names;
  if (scope_->object == nullptr) return names;
  for (const auto& [name, value] : scope_->object->items()) names.push_back(name);
  return names;
}

const std::string& JsonReader::path() const {
  return scope_->path;
}

std::string JsonReader::origin(std::string_view key) const {
  return has(key) ? scope_->state->tree.origin_text(child_pointer(scope_->pointer, key)) : "default";
}

void JsonReader::fail(std::string_view key, std::string_view message, std::string remedy,
                      std::source_location where) const {
  const JsonTree& tree = scope_->state->tree;
  throw_json_error(tree.options.errors,
                   fmt::format("{}: {}: {}", tree.value_location(child_pointer(scope_->pointer, key)),
                               child_path(scope_->path, key), message),
                   std::move(remedy), where);
}

void JsonReader::finish() const {
  refuse_unknown(*scope_, *scope_);
}

// The objects with a key of that name, as paths of the key.
void JsonReader::find_elsewhere(const Scope& scope, const std::string& name, std::vector<std::string>& found) {
  if (scope.known.contains(name)) found.push_back(child_path(scope.path, name));
  for (const auto& [key, opened] : scope.opened) find_elsewhere(*opened, name, found);
}

std::string JsonReader::remedy_of_unknown(const Scope& scope, const Scope& root, const std::string& name,
                                          const json& value) {
  if (const auto hint = scope.state->tree.options.hint) {
    if (auto text = hint(name, value); !text.empty()) return text;
  }
  const std::vector<std::string> valid(scope.known.begin(), scope.known.end());
  if (const auto near = nearest(name, valid)) return fmt::format("use \"{}\"", *near);
  std::vector<std::string> elsewhere;
  find_elsewhere(root, name, elsewhere);
  if (!elsewhere.empty()) return fmt::format("it belongs elsewhere: use {}", fmt::join(elsewhere, " or "));
  return valid.empty() ? "remove it: no key is valid here" : fmt::format("use one of: {}", fmt::join(valid, ", "));
}

void JsonReader::refuse_unknown(const Scope& scope, const Scope& root) {
  const JsonTree& tree = scope.state->tree;
  const json no_members = json::object();
  for (const auto& [name, value] : (scope.object == nullptr ? no_members : *scope.object).items()) {
    if (scope.known.contains(name) || is_comment(name)) continue;
    throw_json_error(tree.options.errors,
                     fmt::format("{}: unknown key {}", tree.key_location(child_pointer(scope.pointer, name)),
                                 child_path(scope.path, name)),
                     remedy_of_unknown(scope, root, name, value));
  }
  for (const auto& [key, opened] : scope.opened) refuse_unknown(*opened, root);
}

// The types that require(), get() and find() can be asked for.
#define ORTHANT_JSON_TYPE(...)                                                             \
  template __VA_ARGS__ JsonReader::require<__VA_ARGS__>(std::string_view);                 \
  template __VA_ARGS__ JsonReader::get<__VA_ARGS__>(std::string_view, const __VA_ARGS__&); \
  template std::optional<__VA_ARGS__> JsonReader::find<__VA_ARGS__>(std::string_view);
ORTHANT_JSON_TYPE(bool)
ORTHANT_JSON_TYPE(int)
ORTHANT_JSON_TYPE(std::int64_t)
ORTHANT_JSON_TYPE(std::uint64_t)
ORTHANT_JSON_TYPE(double)
ORTHANT_JSON_TYPE(std::string)
ORTHANT_JSON_TYPE(std::vector<int>)
ORTHANT_JSON_TYPE(std::vector<std::int64_t>)
ORTHANT_JSON_TYPE(std::vector<double>)
ORTHANT_JSON_TYPE(std::vector<std::string>)
#undef ORTHANT_JSON_TYPE

}  // namespace orthant
