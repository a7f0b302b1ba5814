#include "orthant/layout/expert_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/ranges.h"

namespace orthant {
namespace {

template <typename Body>
void for_experts(GraphSpec& graph, const Body& body) {
  for (UnitSpec& unit : graph.units) {
    for (ParameterSpec& parameter : unit.parameters) {
      if (parameter.expert) body(parameter);
    }
  }
}

// Axes of the stage from the outermost on, without those of degree 1.
std::vector<Axis> stage_axes(const Mesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : mesh.order()) {
    if (axis != Axis::pp && mesh.degree(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

void check_order(const Mesh& mesh, int expert_tp) {
  const auto active = [&](Axis axis) { return mesh.degree(axis) > 1; };
  const auto first = std::ranges::find_if(mesh.order(), active);
  const bool pp_first = !active(Axis::pp) || *first == Axis::pp;
  const auto axes = stage_axes(mesh);
  const bool tp_last = expert_tp == 1 || axes.back() == Axis::tp;
  if (pp_first && tp_last) return;
  throw ConfigError(fmt::format("mesh {}: experts lie over neighbouring ranks of a stage, and the order {} does not "
                                "have pp outermost{}",
                                mesh.to_string(), order_text(mesh.order()), tp_last ? "" : " and tp innermost"),
                    {.remedy = "leave the order out: pp,dp,fsdp,cp,tp"});
}

void check_count(const ParameterSpec& parameter, const Mesh& mesh) {
  const std::int64_t experts = parameter.expert->count;
  const int ep = mesh.degree(Axis::ep);
  if (experts >= ep) return;
  throw ConfigError(fmt::format("mesh {}: layers have {} experts for {} ranks of ep", mesh.to_string(), experts, ep),
                    {.remedy = fmt::format("set ep to {} or less", experts)});
}

// Whole experts on tp ranks are for ranks that have tokens of their own.
void check_tokens(const Mesh& mesh, const TensorPolicy& policy, int shared_by) {
  if (mesh.degree(Axis::tp) == 1 || shared_by > 1 || policy.sequence_parallel) return;
  throw ConfigError(
      fmt::format("mesh {}: experts are whole on each of {} tp ranks, which have the same tokens without sequence "
                  "parallelism",
                  mesh.to_string(), mesh.degree(Axis::tp)),
      {.remedy = "set parallel.sequence_parallel=true, or parallel.expert_tp=true"});
}

}  // namespace

bool has_experts(const GraphSpec& graph) {
  return std::ranges::any_of(graph.units, [](const UnitSpec& unit) {
    return std::ranges::any_of(unit.parameters,
                               [](const ParameterSpec& parameter) { return parameter.expert.has_value(); });
  });
}

bool routes_tokens(const GraphSpec& graph) {
  return std::ranges::any_of(graph.units, [](const UnitSpec& unit) { return unit.num_experts() > 0; });
}

GraphSpec with_experts(GraphSpec graph, const Mesh& mesh, const TensorPolicy& policy) {
  const int ep = mesh.degree(Axis::ep);
  const int tp = mesh.degree(Axis::tp);
  if (!has_experts(graph)) {
    if (ep == 1) return graph;
    auto degrees = mesh.degrees();
    degrees[Axis::ep] = 1;
    throw ConfigError(
        fmt::format("mesh {}: the model has no experts for ep", mesh.to_string()),
        {.remedy = fmt::format("use --mesh {}, or leave ep out", Mesh(degrees, order_text(mesh.order())).to_string())});
  }
  const int shared_by = policy.expert_tp.value_or(ep == 1) ? tp : 1;
  const bool apart = ep > 1 || shared_by < tp;
  if (apart) {
    check_order(mesh, shared_by);
    check_tokens(mesh, policy, shared_by);
  }
  if (mesh.stage_size() % (ep * shared_by) != 0) {
    throw ConfigError(fmt::format("mesh {}: ep={} with each expert over {} tp ranks does not divide the {} ranks of a "
                                  "stage",
                                  mesh.to_string(), ep, shared_by, mesh.stage_size()),
                      {.remedy = "set parallel.expert_tp=false, or a smaller ep"});
  }
  for_experts(graph, [&](ParameterSpec& parameter) {
    if (apart) check_count(parameter, mesh);
    if (apart && shared_by == 1) parameter.tp.reset();
    if (!apart) parameter.expert.reset();
  });
  graph.expert_degree = ep;
  return graph;
}

int expert_tp(const GraphSpec& graph, const Mesh& mesh) {
  for (const UnitSpec& unit : graph.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.expert) return parameter.tp ? mesh.degree(Axis::tp) : 1;
    }
  }
  return 0;
}

Mesh expert_mesh(const Mesh& mesh, int expert_tp) {
  const int holders = mesh.degree(Axis::ep) * expert_tp;
  const int same = mesh.stage_size() / holders;  // ranks that hold the same
  const int dp = mesh.degree(Axis::dp);
  const int per_dp = mesh.stage_size() / dp;
  const auto axes = stage_axes(mesh);
  const bool dp_first = dp == 1 || axes.front() == Axis::dp;
  Degrees degrees = {{Axis::pp, mesh.degree(Axis::pp)}, {Axis::tp, holders}};
  if (mesh.degree(Axis::fsdp) == 1) {
    degrees[Axis::dp] = same;
  } else if (dp_first && per_dp % holders == 0) {
    degrees[Axis::dp] = dp;
    degrees[Axis::fsdp] = same / dp;
  } else {
    degrees[Axis::fsdp] = same;
  }
  return Mesh(degrees);
}

Mesh mesh_of(const FlatBuffer& buffer, const Mesh& parameter_mesh) {
  return buffer.expert_tp > 0 ? expert_mesh(parameter_mesh, buffer.expert_tp) : parameter_mesh;
}

std::vector<RankList> token_groups(const Mesh& mesh, int expert_tp) {
  const Mesh experts = expert_mesh(mesh, expert_tp);
  std::vector<RankList> groups;
  for (const RankList& holders : experts.groups(Axis::tp)) {
    for (int t = 0; t < expert_tp; ++t) {
      RankList& group = groups.emplace_back();
      for (std::size_t i = static_cast<std::size_t>(t); i < holders.size(); i += static_cast<std::size_t>(expert_tp)) {
        group.push_back(holders[i]);
      }
    }
  }
  std::ranges::sort(groups, {}, [](const RankList& group) { return group.front(); });
  return groups;
}

bool holds_expert(const ParameterSpec& parameter, int holders, int coordinate, int expert_tp) {
  const Range held = balanced_range(parameter.expert->count, holders / expert_tp, coordinate / expert_tp);
  return parameter.expert->index >= held.begin && parameter.expert->index < held.end;
}

LocalParameter local_expert(const ParameterSpec& parameter, int coordinate, int expert_tp) {
  LocalParameter local = local_parameter(parameter, expert_tp, coordinate % expert_tp);
  std::ranges::fill(local.holders, Range{coordinate, coordinate + 1});
  return local;
}

}  // namespace orthant
