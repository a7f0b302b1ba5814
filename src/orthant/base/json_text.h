// JSON as the program prints it. Paths of a file system need not be UTF-8, and JSON must be: what is not becomes
// U+FFFD.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace orthant {

// In one line, or indented by that many spaces.
template <typename Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace orthant
