#include "orthant/base/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_state.h"
#include "orthant/base/printable.h"
#include "orthant/base/regular_file.h"

namespace orthant {
namespace {

using nlohmann::json;

std::string read_text(const std::string& path, const JsonOptions& options) {
  auto [text, problem] = read_regular_file(path, {.max_bytes = options.max_bytes});
  if (!problem) return text;
  std::string remedy = "name a JSON file";
  if (problem.error_number != 0) remedy = "name a JSON file that exists and can be read";
  if (problem.error_number == ENAMETOOLONG || problem.error_number == EMFILE || problem.error_number == EACCES) {
    remedy = problem.remedy;
  }
  throw_json_error(options.errors, fmt::format("cannot read {}: {}", path, problem.text), std::move(remedy));
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> steps;
  while (true) {
    const auto dot = path.find('.');
    steps.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return steps;
    path.remove_prefix(dot + 1);
  }
}

json parse_override_value(std::string_view text, int max_depth) {
  try {
    return std::move(*parse_json(text, {.max_depth = max_depth}).value);
  } catch (const ConfigError&) {
    return std::string(text);
  }
}

json& array_element(json& array, const std::string& step, const std::string& path, const std::string& origin) {
  std::size_t index = 0;
  const auto [end, status] = std::from_chars(step.data(), step.data() + step.size(), index);
  if (status != std::errc() || end != step.data() + step.size() || index >= array.size()) {
    throw ConfigError(
        fmt::format("{}: {} is {}, it has no element \"{}\"", origin, path, describe_json(array), step),
        {.remedy = array.empty() ? "set the whole array" : fmt::format("use an index from 0 to {}", array.size() - 1)});
  }
  return array[index];
}

struct Place {
  json* node;
  std::string pointer;
};

// The node at the end of the path. Missing members are made as null, and become objects when the path goes on; nothing
// is made when the path is refused.
Place find_or_make(JsonTree& tree, const std::vector<std::string>& steps, const std::string& origin) {
  Place place{tree.value.get(), ""};
  std::string path;
  for (const auto& step : steps) {
    json& around = *place.node;
    place.pointer = child_pointer(place.pointer, step);
    if (around.is_null() && !path.empty()) around = json::object();
    if (around.is_array()) {
      place.node = &array_element(around, step, path, origin);
    } else if (around.is_object()) {
      if (!around.contains(step)) {
        tree.origins.insert_or_assign(place.pointer, JsonOrigin{.key = {}, .value = {}, .assignment = origin});
      }
      place.node = &around[step];
    } else {
      throw ConfigError(fmt::format("{}: {} is {}, not an object", origin, path.empty() ? tree.options.source : path,
                                    describe_json(around)),
                        {.remedy = "set a key that lies in an object or an array"});
    }
    path = child_path(path, step);
  }
  return place;
}

}  // namespace

JsonDocument::JsonDocument(JsonTree tree) : state_(std::make_shared<JsonState>(JsonState{std::move(tree)})) {}

JsonDocument JsonDocument::parse(std::string_view text, JsonOptions options) {
  return JsonDocument(parse_json(text, options));
}

JsonDocument JsonDocument::load(const std::string& path, JsonOptions options) {
  options.source = path;
  return parse(read_text(path, options), options);
}

void JsonDocument::apply_override(std::string_view assignment, std::string_view flag) {
  if (state_->reading) throw InternalError("an override came after the document was read");
  JsonTree& tree = state_->tree;
  if (!is_utf8(assignment)) {
    throw ConfigError(fmt::format("{}: the assignment is not valid UTF-8", flag), {.remedy = "write it in UTF-8"});
  }
  const std::string origin = fmt::format("{} {}", flag, assignment);
  const auto equals = assignment.find('=');
  const auto steps = split_path(assignment.substr(0, equals));
  const bool has_empty_step = std::find(steps.begin(), steps.end(), "") != steps.end();
  if (equals == std::string_view::npos || has_empty_step || static_cast<int>(steps.size()) > tree.options.max_depth) {
    throw ConfigError(fmt::format("{}: not an assignment to a key", origin),
                      {.remedy = fmt::format("write {} key=value, such as model.hidden_size=128", flag)});
  }
  const auto [node, pointer] = find_or_make(tree, steps, origin);
  *node = parse_override_value(assignment.substr(equals + 1), tree.options.max_depth);
  const std::string below = pointer + "/";
  auto stale = tree.origins.lower_bound(below);
  while (stale != tree.origins.end() && stale->first.starts_with(below)) stale = tree.origins.erase(stale);
  tree.origins.insert_or_assign(pointer, JsonOrigin{.key = {}, .value = {}, .assignment = origin});
}

void JsonDocument::remove(std::string_view path) {
  if (state_->reading) throw InternalError("a key was removed after the document was read");
  JsonTree& tree = state_->tree;
  auto steps = split_path(path);
  const auto last = std::move(steps.back());
  steps.pop_back();
  json* around = tree.value.get();
  std::string pointer;
  for (const auto& step : steps) {
    if (!around->is_object() || !around->contains(step)) return;
    around = &(*around)[step];
    pointer = child_pointer(pointer, step);
  }
  if (!around->is_object() || around->erase(last) == 0) return;
  pointer = child_pointer(pointer, last);
  std::erase_if(tree.origins,
                [&](const auto& origin) { return origin.first == pointer || origin.first.starts_with(pointer + "/"); });
}

const nlohmann::json& JsonDocument::value() const {
  return *state_->tree.value;
}

const std::vector<JsonEntry>& JsonDocument::entries() const {
  return state_->entries;
}

}  // namespace orthant
