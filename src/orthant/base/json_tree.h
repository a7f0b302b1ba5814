// A parsed JSON value together with where each part of it came from: a place in a text, or a command-line override.
// This is the storage under JsonDocument and JsonReader; other layers use those.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <source_location>
#include <string>
#include <string_view>

namespace orthant {

enum class JsonErrorKind { kConfig, kData };  // ConfigError or DataError

// What to set instead of a key that nobody reads, as by the name that another program has for it; empty when unknown.
using NameHint = std::string (*)(std::string_view name, const nlohmann::json& value);

struct JsonOptions {
  std::string source = "JSON text";  // what errors and origins call the text; load() puts the file's name here
  JsonErrorKind errors = JsonErrorKind::kConfig;
  int max_depth = 64;
  std::int64_t max_bytes = std::int64_t{16} << 20;       // of the text
  std::int64_t max_tree_bytes = std::int64_t{48} << 20;  // of memory for what the text says, estimated
  NameHint hint = nullptr;                               // asked before the nearest valid key is named
};

// Lines and columns count from 1; columns count bytes.
struct JsonPosition {
  std::int64_t line = 0;
  std::int64_t column = 0;
};

struct JsonOrigin {
  JsonPosition key;             // of the key for a member of an object, of the value otherwise
  JsonPosition value;           // where the value begins
  std::string assignment = {};  // "--set model.hidden_size=3" when the value was set so; positions mean nothing then
};

struct JsonTree {
  JsonOptions options;
  std::shared_ptr<nlohmann::json> value;
  // By JSON pointer ("" is the whole, "/model/layers/0" a part). What an override set has one entry, at its top.
  std::map<std::string, JsonOrigin, std::less<>> origins;

  // Where the value comes from: of the entry itself or of the nearest one around it.
  const JsonOrigin& origin(std::string_view pointer) const;

  // As --print-config shows it: "train.json:12" or "--set model.hidden_size=3".
  std::string origin_text(std::string_view pointer) const;

  // As an error begins: "train.json:12:5" or "--set model.hidden_size=3".
  std::string key_location(std::string_view pointer) const;
  std::string value_location(std::string_view pointer) const;
};

// Refuses what is not strict JSON, duplicate keys, ill-formed UTF-8, numbers beyond a double, and nesting, length
// or size in memory beyond the options' limits.
JsonTree parse_json(std::string_view text, const JsonOptions& options);

// The JSON pointer and the dotted path of a member. A pointer is exact; a path is what people read and write.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_path(std::string_view path, std::string_view key);

// "the string \"abc\"", "the number 3", "an array of 2 elements": what an error says was found. Long values are cut.
std::string describe_json(const nlohmann::json& value);

[[noreturn]] void throw_json_error(JsonErrorKind kind, std::string message, std::string remedy = {},
                                   std::source_location where = std::source_location::current());

}  // namespace orthant
