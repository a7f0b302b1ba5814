#include "orthant/layout/placement_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "orthant/base/human.h"
#include "orthant/base/name_runs.h"
#include "orthant/base/text_table.h"
#include "orthant/layout/placements.h"
#include "orthant/layout/unit_buffers.h"

namespace orthant {
namespace {

std::string shape_words(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string times(const NameRun& run) {
  return run.count > 1 ? fmt::format("  x{}", run.count) : "";
}

// What follows the unit's name; nothing when the name begins otherwise.
std::string_view name_in_unit(const UnitSpec& unit, std::string_view parameter) {
  return parameter.starts_with(unit.name) ? parameter.substr(unit.name.size()) : std::string_view();
}

// The parameters of one unit.
using Rows = std::vector<Placement>;

bool alike(const UnitSpec& first, const Rows& first_rows, const UnitSpec& next, const Rows& next_rows) {
  return std::ranges::equal(first_rows, next_rows, [&](const Placement& a, Placement b) {
    const std::string_view name = name_in_unit(first, a.parameter);
    if (name.empty() || name != name_in_unit(next, b.parameter)) return false;
    b.parameter = a.parameter;
    b.unit = a.unit;
    return a == b;
  });
}

std::string parameter_table(const GraphSpec& graph, const std::vector<Placement>& all, DType params) {
  std::vector<Rows> rows(graph.units.size());
  for (const Placement& placement : all) rows[static_cast<std::size_t>(placement.unit)].push_back(placement);
  std::vector<std::string> names;
  for (const UnitSpec& unit : graph.units) names.push_back(unit.name);
  const auto runs = name_runs(names, [&](std::size_t first, std::size_t next) {
    return alike(graph.units[first], rows[first], graph.units[next], rows[next]);
  });
  std::vector<TableLine> lines = {{"parameter", "shape", "over tp", "on this rank", "bytes"}};
  for (const NameRun& run : runs) {
    for (const Placement& row : rows[run.first]) {
      const auto rest = name_in_unit(graph.units[run.first], row.parameter);
      const auto bytes = num_elements(row.local_shape) * bytes_of(params) * static_cast<std::int64_t>(run.count);
      lines.push_back({(rest.empty() ? row.parameter : fmt::format("{}{}", run.name, rest)) + times(run),
                       shape_words(row.shape), placement_words(row), shape_words(row.local_shape),
                       format_bytes(bytes)});
    }
  }
  return text_table(lines, 4);
}

std::string value_table(const std::vector<ValuePlacement>& values) {
  std::vector<std::string> names;
  for (const ValuePlacement& value : values) names.push_back(value.value);
  const auto runs = name_runs(names, [&](std::size_t first, std::size_t next) {
    ValuePlacement renamed = values[next];
    renamed.value = values[first].value;
    return renamed == values[first];
  });
  std::vector<TableLine> lines = {{"value", "shape", "cut over", "on this rank"}};
  for (const NameRun& run : runs) {
    const ValuePlacement& value = values[run.first];
    lines.push_back(
        {run.name + times(run), shape_words(value.shape), placement_words(value), shape_words(value.local_shape)});
  }
  return text_table(lines, 4);
}

std::string buffer_table(const UnitBuffers& buffers, DType params) {
  std::vector<std::string> names;
  for (const FlatBuffer& buffer : buffers.all) names.push_back(buffer.name);
  const auto runs = name_runs(
      names, [&](std::size_t first, std::size_t next) { return buffers.all[first].size == buffers.all[next].size; });
  std::vector<TableLine> lines = {{"flat buffer", "elements", "bytes", "shard"}};
  for (const NameRun& run : runs) {
    const FlatBuffer& buffer = buffers.all[run.first];
    const auto elements = buffer.size * static_cast<std::int64_t>(run.count);
    const auto bytes = elements * bytes_of(params);
    lines.push_back(
        {run.name + times(run), format_count(elements), format_bytes(bytes), format_bytes(bytes / buffer.num_shards)});
  }
  return text_table(lines);
}

std::string place_words(const Mesh& mesh, int rank) {
  std::vector<std::string> words;
  const Coordinate place = mesh.coordinate(rank);
  for (const Axis axis : mesh.order()) {
    if (mesh.degree(axis) > 1) words.push_back(fmt::format("{}={}", axis_name(axis), place[axis]));
  }
  return words.empty() ? "" : fmt::format(", at {}", fmt::join(words, ","));
}

}  // namespace

std::string placement_text(const GraphSpec& resolved, const Mesh& mesh, int rank, DType params,
                           const std::vector<int>& unit_pp_coordinates) {
  const auto rows = placements(resolved, mesh, rank, unit_pp_coordinates);
  const auto values = cut_values(resolved, mesh, rank, unit_pp_coordinates);
  std::int64_t whole = 0;
  std::int64_t local = 0;
  for (const UnitSpec& unit : resolved.units) whole += unit.num_parameters();
  for (const Placement& row : rows) local += num_elements(row.local_shape);
  auto text = fmt::format("Parameters of {} in {} on rank {}{}\n\n{}", resolved.name, dtype_name(params), rank,
                          place_words(mesh, rank), parameter_table(resolved, rows, params));
  if (!values.empty()) text += fmt::format("\nValues that tp cuts, of a microbatch\n\n{}", value_table(values));
  std::string shard;
  if (const int fsdp = mesh.degree(Axis::fsdp); fsdp > 1) {
    const auto buffers = unit_buffers(resolved, mesh, mesh.coordinate(rank), {}, unit_pp_coordinates);
    std::int64_t elements = 0;
    for (const FlatBuffer& buffer : buffers.all) elements += buffer.size / buffer.num_shards;
    text += fmt::format("\nFlat buffers with their padding, which fsdp={} cuts into shards\n\n{}", fsdp,
                        buffer_table(buffers, params));
    shard = fmt::format("; a shard of its flat buffers has {}", format_bytes(elements * bytes_of(params)));
  }
  text += fmt::format("\nThe model has {} parameters, {}. This rank's part has {}, {}{}.\n", format_count(whole),
                      format_bytes(whole * bytes_of(params)), format_count(local),
                      format_bytes(local * bytes_of(params)), shard);
  return text;
}

nlohmann::ordered_json placement_json(const GraphSpec& resolved, const Mesh& mesh, int rank, DType params,
                                      const std::vector<int>& unit_pp_coordinates) {
  nlohmann::ordered_json document;
  document["rank"] = rank;
  auto& parameters = document["parameters"] = nlohmann::ordered_json::array();
  for (const Placement& row : placements(resolved, mesh, rank, unit_pp_coordinates)) {
    parameters.push_back({{"name", row.parameter},
                          {"shape", row.shape},
                          {"placement", placement_words(row)},
                          {"local_shape", row.local_shape},
                          {"bytes", num_elements(row.local_shape) * bytes_of(params)}});
  }
  auto& values = document["values"] = nlohmann::ordered_json::array();
  for (const ValuePlacement& row : cut_values(resolved, mesh, rank, unit_pp_coordinates)) {
    values.push_back({{"name", row.value},
                      {"shape", row.shape},
                      {"placement", placement_words(row)},
                      {"local_shape", row.local_shape}});
  }
  return document;
}

}  // namespace orthant
