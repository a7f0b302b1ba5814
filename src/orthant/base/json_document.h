// A JSON file or text, read strictly, with overrides from the command line. It is read through the JsonReader of
// json_reader.h, which notes every value that was asked for, so that the whole configuration can be printed with the
// origin of each part.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_tree.h"

namespace orthant {

// One value that was read, for --print-config: model.hidden_size, 128, "train.json:12" (or "default", or "--set ...").
struct JsonEntry {
  std::string key;
  std::string value;  // as JSON
  std::string origin;
};

// What a document and its readers share.
struct JsonState;

// A handle: copies share the value, its overrides and the entries read.
class JsonDocument {
 public:
  // Errors are of the kind that the options name and say source, line, column and key.
  static JsonDocument parse(std::string_view text, JsonOptions options = {});
  static JsonDocument load(const std::string& path, JsonOptions options = {});

  // Sets one value: "model.hidden_size=128", "data.sources.0.weight=0.5". The value is taken as JSON where it is JSON
  // and as a string otherwise; missing objects on the way are made. Call it before any reader exists; ConfigError.
  void apply_override(std::string_view assignment, std::string_view flag = "--set");

  // Forgets a key, such as "model.hidden_size", as if nobody had written it; nothing when it is not there. Call it
  // before any reader exists.
  void remove(std::string_view path);

  const nlohmann::json& value() const;

  // In the order of first reading; a value read twice is listed once.
  const std::vector<JsonEntry>& entries() const;

 private:
  friend class JsonReader;
  explicit JsonDocument(JsonTree tree);

  std::shared_ptr<JsonState> state_;
};

}  // namespace orthant
