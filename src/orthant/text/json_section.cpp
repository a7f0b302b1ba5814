#include "orthant/text/json_section.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_tree.h"

namespace orthant {

using nlohmann::json;

JsonSection::JsonSection(const json& value, std::string source, std::string path)
    : value_(&value), source_(std::move(source)), path_(std::move(path)) {
  if (!value.is_object()) {
    throw DataError(fmt::format("{}: {} is {}; expected an object", source_, path_.empty() ? "the whole" : path_,
                                describe_json(value)),
                    {.remedy = "give a file that a Hugging Face tokenizer was saved to"});
  }
}

bool JsonSection::has(std::string_view key) const {
  const auto place = value_->find(key);
  return place != value_->end() && !place->is_null();
}

const json& JsonSection::value(std::string_view key) const {
  const auto place = value_->find(key);
  if (place == value_->end()) fail(key, "is missing");
  return *place;
}

std::string JsonSection::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonSection::fail(std::string_view key, std::string_view message, std::string remedy,
                       std::source_location where) const {
  throw DataError(fmt::format("{}: {} {}", source_, path(key), message), {.remedy = std::move(remedy)}, where);
}

void JsonSection::wrong_type(std::string_view key, std::string_view expected) const {
  fail(key, fmt::format("is {}; expected {}", describe_json(value(key)), expected));
}

bool JsonSection::flag(std::string_view key, bool default_value) const {
  if (!has(key)) return default_value;
  if (!value(key).is_boolean()) wrong_type(key, "true or false");
  return value(key).get<bool>();
}

std::int64_t JsonSection::integer(std::string_view key) const {
  const auto& found = value(key);
  const bool fits = found.is_number_integer() &&
                    (!found.is_number_unsigned() || found.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  if (!fits) wrong_type(key, "an integer");
  return found.get<std::int64_t>();
}

std::string JsonSection::text(std::string_view key) const {
  if (!value(key).is_string()) wrong_type(key, "a string");
  return value(key).get<std::string>();
}

std::optional<std::string> JsonSection::find_text(std::string_view key) const {
  return has(key) ? std::optional(text(key)) : std::nullopt;
}

JsonSection JsonSection::object(std::string_view key) const {
  return {value(key), source_, path(key)};
}

std::vector<JsonSection> JsonSection::objects(std::string_view key) const {
  std::vector<JsonSection> sections;
  if (!has(key)) return sections;
  if (!value(key).is_array()) wrong_type(key, "a list");
  for (const auto& element : value(key)) {
    sections.emplace_back(element, source_, fmt::format("{}.{}", path(key), sections.size()));
  }
  return sections;
}

std::vector<std::string> JsonSection::keys() const {
  std::vector<std::string> names;
  for (const auto& item : value_->items()) names.push_back(item.key());
  return names;
}

}  // namespace orthant
