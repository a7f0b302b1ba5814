#include "orthant/layout/placements.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/ranges.h"
#include "orthant/layout/expert_view.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/unit_buffers.h"

namespace orthant {
namespace {

void check_resolved(const GraphSpec& graph, const Mesh& mesh) {
  if (graph.tensor && graph.tensor->degree == mesh.degree(Axis::tp)) return;
  throw InternalError(fmt::format("graph \"{}\" is resolved for {} tp ranks, and mesh {} has {}", graph.name,
                                  graph.tensor ? graph.tensor->degree : 0, mesh.to_string(), mesh.degree(Axis::tp)));
}

Placement::Cut cut_of(const ParameterSpec& parameter) {
  if (!parameter.tp) return Placement::Cut::whole;
  if (parameter.table) return Placement::Cut::table;
  return parameter.tp->dim == 0 ? Placement::Cut::column : Placement::Cut::row;
}

// Blocks of a fused projection may be held by different numbers of ranks.
std::int64_t most_copies(const std::vector<Range>& holders) {
  std::int64_t most = 1;
  for (const Range& ranks : holders) most = std::max(most, ranks.size());
  return most;
}

Shape local_shape(const ValueSpec& value, int degree, int coordinate) {
  if (!value.sequence_sharded) {
    Shape shape = value.shape;
    std::int64_t& size = shape.at(static_cast<std::size_t>(value.tp->dim));
    size = balanced_range(size, degree, coordinate).size();
    return shape;
  }
  const std::int64_t channels = value.shape.back();
  return {balanced_range(num_elements(value.shape) / channels, degree, coordinate).size(), channels};
}

// What the units at a pp coordinate touch.
struct Touched {
  std::set<std::string> parameters;
  std::set<std::string> values;
};

Touched touched_at(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates, int pp) {
  Touched touched;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!runs_at(static_cast<int>(u), unit_pp_coordinates, pp)) continue;
    const UnitSpec& unit = graph.units[u];
    for (const ParameterSpec& parameter : unit.parameters) touched.parameters.insert(parameter.name);
    touched.parameters.insert(unit.borrowed.begin(), unit.borrowed.end());
    touched.values.insert(unit.inputs.begin(), unit.inputs.end());
    touched.values.insert(unit.outputs.begin(), unit.outputs.end());
  }
  return touched;
}

}  // namespace

std::string placement_words(const Placement& placement) {
  std::string words;
  switch (placement.cut) {
    case Placement::Cut::whole:
      words = "whole";
      break;
    case Placement::Cut::column:
      words = "column";
      break;
    case Placement::Cut::row:
      words = "row";
      break;
    case Placement::Cut::table:
      words = "table rows";
      break;
  }
  if (placement.partial) words += ", partial";
  if (placement.copies > 1) words += fmt::format(", {} copies", placement.copies);
  return words;
}

std::vector<Placement> placements(const GraphSpec& resolved, const Mesh& mesh, int rank,
                                  const std::vector<int>& unit_pp_coordinates) {
  check_resolved(resolved, mesh);
  const auto here = touched_at(resolved, unit_pp_coordinates, mesh.coordinate(rank)[Axis::pp]);
  const int degree = mesh.degree(Axis::tp);
  const int coordinate = mesh.coordinate(rank)[Axis::tp];
  const int shared_by = expert_tp(resolved, mesh);
  const Mesh experts = shared_by > 0 ? expert_mesh(mesh, shared_by) : mesh;
  const int holder = experts.coordinate(rank)[Axis::tp];
  std::vector<Placement> found;
  for (std::size_t u = 0; u < resolved.units.size(); ++u) {
    for (const ParameterSpec& parameter : resolved.units[u].parameters) {
      if (!here.parameters.contains(parameter.name)) continue;
      const bool apart = parameter.expert && shared_by > 0;
      if (apart && !holds_expert(parameter, experts.degree(Axis::tp), holder, shared_by)) continue;
      LocalParameter local =
          apart ? local_expert(parameter, holder, shared_by) : local_parameter(parameter, degree, coordinate);
      found.push_back({.parameter = parameter.name,
                       .unit = static_cast<int>(u),
                       .shape = parameter.shape,
                       .cut = cut_of(parameter),
                       .partial = parameter.partial_under_sequence_parallel,
                       .copies = parameter.tp && !apart ? most_copies(local.holders) : 1,
                       .local_shape = std::move(local.shape)});
    }
  }
  return found;
}

std::string placement_words(const ValuePlacement& placement) {
  return placement.cut == ValuePlacement::Cut::tokens ? "tokens" : "vocabulary";
}

std::vector<ValuePlacement> cut_values(const GraphSpec& resolved, const Mesh& mesh, int rank,
                                       const std::vector<int>& unit_pp_coordinates) {
  check_resolved(resolved, mesh);
  const auto here = touched_at(resolved, unit_pp_coordinates, mesh.coordinate(rank)[Axis::pp]);
  const int degree = mesh.degree(Axis::tp);
  const int coordinate = mesh.coordinate(rank)[Axis::tp];
  std::vector<ValuePlacement> found;
  for (const ValueSpec& value : resolved.values) {
    if ((!value.sequence_sharded && !value.tp) || !here.values.contains(value.name)) continue;
    using Cut = ValuePlacement::Cut;
    found.push_back({.value = value.name,
                     .shape = value.shape,
                     .cut = value.sequence_sharded ? Cut::tokens : Cut::vocabulary,
                     .local_shape = local_shape(value, degree, coordinate)});
  }
  return found;
}

}  // namespace orthant
