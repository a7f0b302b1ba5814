// From a JSON value to a C++ value, exactly or not at all. Internal to the JSON files of this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/base/json_tree.h"

namespace orthant {

// A value with its names, for errors.
struct JsonPlace {
  const JsonTree& tree;
  const nlohmann::json& value;
  std::string pointer;
  std::string path;
};

// "<location>: <path>: expected <expected>, found <value>".
[[noreturn]] void throw_type_error(const JsonPlace& place, std::string_view expected);

void convert_json(const JsonPlace& place, bool& out);
void convert_json(const JsonPlace& place, int& out);
void convert_json(const JsonPlace& place, std::int64_t& out);
void convert_json(const JsonPlace& place, std::uint64_t& out);
void convert_json(const JsonPlace& place, double& out);
void convert_json(const JsonPlace& place, std::string& out);

// T is int, std::int64_t, double or std::string.
template <typename T>
void convert_json(const JsonPlace& place, std::vector<T>& out);

// What an error says was expected. The argument only selects the type.
std::string expected_text(const bool*);
std::string expected_text(const int*);
std::string expected_text(const std::int64_t*);
std::string expected_text(const std::uint64_t*);
std::string expected_text(const double*);
std::string expected_text(const std::string*);

template <typename T>
std::string expected_text(const std::vector<T>*) {
  return "an array, each element " + expected_text(static_cast<const T*>(nullptr));
}

}  // namespace orthant
