#include "orthant/files/element_type.h"

#include <array>
#include <utility>
#include <vector>

namespace orthant {
namespace {

constexpr std::array<std::pair<std::string_view, std::int64_t>, 19> kTypes = {{
    {"F64", 8},     {"F32", 4},     {"F16", 2},     {"BF16", 2},        {"I64", 8},         {"I32", 4},  {"I16", 2},
    {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2},         {"U8", 1},          {"BOOL", 1}, {"C64", 8},
    {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1},
}};

}  // namespace

std::optional<std::int64_t> element_bytes(std::string_view name) {
  for (const auto& [known, bytes] : kTypes) {
    if (known == name) return bytes;
  }
  return std::nullopt;
}

bool has_partial_byte_elements(std::string_view name) {
  return name == "F4" || name == "F6_E2M3" || name == "F6_E3M2";
}

std::span<const std::string> element_type_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(kTypes.size());
    for (const auto& type : kTypes) all.emplace_back(type.first);
    return all;
  }();
  return names;
}

}  // namespace orthant
