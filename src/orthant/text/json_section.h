// Typed looks into a part of a tokenizer.json. Unlike a configuration, such a file may have more keys than we read;
// what is read must have the right type. Errors are DataErrors: "tokenizer.json: model.dropout is the string "x"; ...".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// A view: the value must outlive it.
class JsonSection {
 public:
  JsonSection(const nlohmann::json& value, std::string source, std::string path = {});

  // Whether the key is there and not null.
  bool has(std::string_view key) const;

  bool flag(std::string_view key, bool default_value) const;
  std::int64_t integer(std::string_view key) const;
  std::string text(std::string_view key) const;
  std::optional<std::string> find_text(std::string_view key) const;
  JsonSection object(std::string_view key) const;
  std::vector<JsonSection> objects(std::string_view key) const;  // none when the key is absent
  std::vector<std::string> keys() const;

  const nlohmann::json& value() const { return *value_; }
  // The value of a key that must be there.
  const nlohmann::json& value(std::string_view key) const;
  std::string path(std::string_view key) const;
  const std::string& source() const { return source_; }

  // Throws a DataError: "tokenizer.json: pre_tokenizer.pattern <message>".
  [[noreturn]] void fail(std::string_view key, std::string_view message, std::string remedy = {},
                         std::source_location where = std::source_location::current()) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string source_;
  std::string path_;
};

}  // namespace orthant
