// Reading and writing a mesh as text.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "orthant/base/error.h"
#include "orthant/mesh/fields.h"
#include "orthant/mesh/mesh.h"

namespace orthant {
namespace {

constexpr std::string_view kOrderField = "order";
constexpr char kOrderSeparator = ':';
constexpr std::string_view kExample = "pp=2,dp=2,tp=2";

std::int64_t parse_degree(Axis axis, std::string_view text) {
  std::int64_t degree = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), degree);
  const std::string_view name = axis_name(axis);
  if (error == std::errc::result_out_of_range) {
    throw ConfigError(fmt::format("{}={}: a mesh has at most {} ranks", name, text, Mesh::kMaxRanks),
                      {.remedy = fmt::format("set {} to the number of ranks on that axis", name)});
  }
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw ConfigError(
        fmt::format("the degree of {} is {:?}, which is not a whole number", name, text),
        {.remedy = fmt::format("write {}=N with N at least 1, and a comma between axes: {}", name, kExample)});
  }
  return degree;
}

// The order that a field of the mesh states, with commas.
std::string order_of_field(std::string_view value) {
  if (value.empty()) {
    throw ConfigError("the mesh has an empty order", {.remedy = "leave it out or write axes, such as order=pp:tp:dp"});
  }
  std::string order(value);
  std::ranges::replace(order, kOrderSeparator, ',');
  return order;
}

void check_same_order(const Mesh& mesh, std::string_view order) {
  if (trimmed(order).empty() || Mesh(mesh.degrees(), order) == mesh) return;
  throw ConfigError(fmt::format("the mesh is {}, but its order is also given as {:?}", mesh.to_string(), order),
                    {.remedy = "give the order once"});
}

}  // namespace

Mesh Mesh::parse(std::string_view text, std::string_view order) {
  if (trimmed(text).empty()) {
    throw ConfigError("the mesh is empty",
                      {.remedy = fmt::format("write degrees such as {}, or dp=1 for one rank", kExample)});
  }
  if (trimmed(text) == "auto") {
    throw ConfigError("mesh auto: orthant train alone picks its mesh",
                      {.remedy = fmt::format("write degrees such as {}; orthant plan names the best ones", kExample)});
  }
  Degrees degrees;
  std::string order_found;
  for (std::string_view field : split_fields(text, ',')) {
    const std::size_t equals = field.find('=');
    if (equals == std::string_view::npos) {
      throw ConfigError(fmt::format("mesh {:?}: expected axis=degree, found {:?}", text, field),
                        {.remedy = fmt::format("write degrees such as {}", kExample)});
    }
    const std::string_view name = trimmed(field.substr(0, equals));
    const std::string_view value = trimmed(field.substr(equals + 1));
    if (name == kOrderField) {
      if (!order_found.empty()) {
        throw ConfigError(fmt::format("mesh {:?} gives the order twice", text), {.remedy = "give the order once"});
      }
      order_found = order_of_field(value);
      continue;
    }
    const Axis axis = parse_axis(name);
    const std::int64_t degree = parse_degree(axis, value);
    if (!degrees.emplace(axis, degree).second) {
      throw ConfigError(fmt::format("mesh {:?} gives {} twice, as {} and {}", text, name, degrees.at(axis), degree),
                        {.remedy = fmt::format("keep one: {}={} or {}={}", name, degrees.at(axis), name, degree)});
    }
  }
  const Mesh mesh(degrees, order_found.empty() ? order : order_found);
  check_same_order(mesh, order);
  return mesh;
}

std::string Mesh::to_string() const {
  std::string text;
  for (Axis axis : active_axes())
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis_name(axis), degree(axis));
  if (text.empty()) text = "dp=1";
  const std::string order = short_order_text(order_, active_axes() - Axis::ep, kOrderSeparator);
  return order.empty() ? text : fmt::format("{},{}={}", text, kOrderField, order);
}

}  // namespace orthant
