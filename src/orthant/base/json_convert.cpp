#include "orthant/base/json_convert.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace orthant {
namespace {

template <typename T>
void convert_integer(const JsonPlace& place, T& out) {
  const auto& value = place.value;
  // Integers too long for 64 bits arrive as floating-point numbers, and are refused with them.
  bool fits = false;
  if (value.is_number_unsigned()) {
    fits = std::in_range<T>(value.get_ref<const nlohmann::json::number_unsigned_t&>());
  } else if (value.is_number_integer()) {
    fits = std::in_range<T>(value.get_ref<const nlohmann::json::number_integer_t&>());
  }
  if (!fits && value.is_number_integer()) {
    throw_type_error(
        place, fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
  if (!fits) throw_type_error(place, expected_text(&out));
  out = value.get<T>();
}

}  // namespace

void throw_type_error(const JsonPlace& place, std::string_view expected) {
  const std::string name = place.path.empty() ? "" : place.path + ": ";
  // A bare word on the command line that happens to be JSON: show how to say that it is text.
  const JsonOrigin& origin = place.tree.origin(place.pointer);
  const bool should_quote = !origin.assignment.empty() && expected == "a string" && place.value.is_primitive();
  std::string remedy;
  if (!origin.assignment.empty()) remedy = fmt::format("give {} {}", place.path, expected);
  if (should_quote) remedy = fmt::format("quote it: '{}=\"{}\"'", place.path, place.value.dump());
  throw_json_error(place.tree.options.errors,
                   fmt::format("{}: {}expected {}, found {}", place.tree.value_location(place.pointer), name, expected,
                               describe_json(place.value)),
                   remedy);
}

void convert_json(const JsonPlace& place, bool& out) {
  if (!place.value.is_boolean()) throw_type_error(place, expected_text(&out));
  out = place.value.get<bool>();
}

void convert_json(const JsonPlace& place, int& out) {
  convert_integer(place, out);
}
void convert_json(const JsonPlace& place, std::int64_t& out) {
  convert_integer(place, out);
}
void convert_json(const JsonPlace& place, std::uint64_t& out) {
  convert_integer(place, out);
}

void convert_json(const JsonPlace& place, double& out) {
  if (!place.value.is_number()) throw_type_error(place, expected_text(&out));
  out = place.value.get<double>();
}

void convert_json(const JsonPlace& place, std::string& out) {
  if (!place.value.is_string()) throw_type_error(place, expected_text(&out));
  out = place.value.get_ref<const std::string&>();
}

template <typename T>
void convert_json(const JsonPlace& place, std::vector<T>& out) {
  if (!place.value.is_array()) throw_type_error(place, expected_text(&out));
  for (std::size_t i = 0; i < place.value.size(); ++i) {
    const std::string step = std::to_string(i);
    T element;
    convert_json({place.tree, place.value[i], child_pointer(place.pointer, step), child_path(place.path, step)},
                 element);
    out.push_back(std::move(element));
  }
}

template void convert_json(const JsonPlace& place, std::vector<int>& out);
template void convert_json(const JsonPlace& place, std::vector<std::int64_t>& out);
template void convert_json(const JsonPlace& place, std::vector<double>& out);
template void convert_json(const JsonPlace& place, std::vector<std::string>& out);

std::string expected_text(const bool*) {
  return "true or false";
}
std::string expected_text(const int*) {
  return "an integer";
}
std::string expected_text(const std::int64_t*) {
  return "an integer";
}
std::string expected_text(const std::uint64_t*) {
  return "a non-negative integer";
}
std::string expected_text(const double*) {
  return "a number";
}
std::string expected_text(const std::string*) {
  return "a string";
}

}  // namespace orthant
