// Typed reading of a JSON document. A reader walks one object; each key is asked for with its type, and finish()
// refuses what nobody asked for. Errors name the file, line, column and key, what was found and what was expected.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "orthant/base/json_document.h"

namespace orthant {

// T is one of bool, int, std::int64_t, std::uint64_t, double, std::string, or a std::vector of int, std::int64_t,
// double or std::string. A reader is a handle: copies, and readers of the same sub-object, know of each other's keys.
class JsonReader {
 public:
  // Of the whole document, which must be an object. Overrides must have been applied.
  explicit JsonReader(const JsonDocument& document);

  template <typename T>
  T require(std::string_view key);

  template <typename T>
  T get(std::string_view key, const std::type_identity_t<T>& default_value);
  // get() over a field that holds its default.
  template <typename T>
  void read(std::string_view key, T& field) {
    field = get<T>(key, field);
  }

  // Nothing when the key is absent or null.
  template <typename T>
  std::optional<T> find(std::string_view key);

  // A sub-object. object() gives an empty one when the key is absent, so that its defaults apply.
  JsonReader object(std::string_view key);
  JsonReader require_object(std::string_view key);

  // The elements of an array of objects; none when the key is absent.
  std::vector<JsonReader> objects(std::string_view key);

  // Any value, taken whole: finish() accepts everything inside. It lives as long as the document or one of its readers.
  const nlohmann::json& require_raw(std::string_view key);

  // Asking does not count as reading.
  bool has(std::string_view key) const;
  bool is_null(std::string_view key) const;  // false when absent
  std::vector<std::string> keys() const;

  const std::string& path() const;                 // "model", "data.sources.0"; empty for the root
  std::string origin(std::string_view key) const;  // "train.json:12", "--set ...", "default" when absent

  // For rules between values: throws the document's kind of error, "train.json:12:5: model.num_heads: <message>".
  [[noreturn]] void fail(std::string_view key, std::string_view message, std::string remedy = {},
                         std::source_location where = std::source_location::current()) const;

  // Refuses keys that were not asked for, here and in every sub-object opened from here; names what the document's hint
  // knows, the nearest valid key, or the objects that have a key of this name. Keys that begin with "_comment" are
  // comments and may stand anywhere.
  void finish() const;

 private:
  struct Scope;
  explicit JsonReader(std::shared_ptr<Scope> scope);

  template <typename T>
  T read(std::string_view key, const nlohmann::json& value);
  const nlohmann::json* lookup(std::string_view key);
  const nlohmann::json& lookup_required(std::string_view key, std::string_view expected);
  JsonReader open(std::string_view key, const nlohmann::json* value);
  static void refuse_unknown(const Scope& scope, const Scope& root);
  static std::string remedy_of_unknown(const Scope& scope, const Scope& root, const std::string& name,
                                       const nlohmann::json& value);
  static void find_elsewhere(const Scope& scope, const std::string& name, std::vector<std::string>& found);

  std::shared_ptr<Scope> scope_;
};

}  // namespace orthant
