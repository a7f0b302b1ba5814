#include "orthant/base/json_tree.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"

namespace orthant {
namespace {

constexpr std::size_t kShownLength = 60;

std::string location(const JsonTree& tree, const JsonOrigin& origin, const JsonPosition& position) {
  if (!origin.assignment.empty()) return origin.assignment;
  return fmt::format("{}:{}:{}", tree.options.source, position.line, position.column);
}

}  // namespace

const JsonOrigin& JsonTree::origin(std::string_view pointer) const {
  while (true) {
    const auto found = origins.find(pointer);
    if (found != origins.end()) return found->second;
    const auto parent_end = pointer.rfind('/');
    if (parent_end == std::string_view::npos) throw InternalError("a JSON tree without an origin for its root");
    pointer = pointer.substr(0, parent_end);
  }
}

std::string JsonTree::origin_text(std::string_view pointer) const {
  const JsonOrigin& found = origin(pointer);
  if (!found.assignment.empty()) return found.assignment;
  return fmt::format("{}:{}", options.source, found.key.line);
}

std::string JsonTree::key_location(std::string_view pointer) const {
  const JsonOrigin& found = origin(pointer);
  return location(*this, found, found.key);
}

std::string JsonTree::value_location(std::string_view pointer) const {
  const JsonOrigin& found = origin(pointer);
  return location(*this, found, found.value);
}

std::string child_pointer(std::string_view pointer, std::string_view key) {
  std::string result(pointer);
  result += '/';
  for (const char letter : key) {
    if (letter == '~') {
      result += "~0";
    } else if (letter == '/') {
      result += "~1";
    } else {
      result += letter;
    }
  }
  return result;
}

std::string child_path(std::string_view path, std::string_view key) {
  const auto shown = printable(key);
  return path.empty() ? shown : fmt::format("{}.{}", path, shown);
}

std::string describe_json(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {} element{}", value.size(), value.size() == 1 ? "" : "s");
  std::string text;
  if (value.is_string() && value.get_ref<const std::string&>().size() > kShownLength) {
    const std::string beginning = value.get_ref<const std::string&>().substr(0, kShownLength);
    text = nlohmann::json(beginning).dump(-1, ' ', true, nlohmann::json::error_handler_t::ignore) + "...";
  } else {
    text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  if (value.is_string()) return "the string " + text;
  if (value.is_number()) return "the number " + text;
  return text;
}

void throw_json_error(JsonErrorKind kind, std::string message, std::string remedy, std::source_location where) {
  if (kind == JsonErrorKind::kData) throw DataError(std::move(message), {.remedy = std::move(remedy)}, where);
  throw ConfigError(std::move(message), {.remedy = std::move(remedy)}, where);
}

}  // namespace orthant
