#include "orthant/plan/estimate/unit_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/program/context_exchanged.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

bool runs_here(const TensorSettings& settings, int unit) {
  return runs_at(unit, settings.unit_pp_coordinates, settings.pp);
}

// One of the lists that a microbatch runs.
struct RunList {
  std::size_t unit = 0;
  const Program& program;
  const std::vector<Operation>& operations;
  const UnitSizes& sizes;
  bool is_forward() const { return &operations == &program.forward; }
};

// Visits those of the units at settings.pp.
template <typename Visit>
void for_lists(const GraphSpec& graph, const TensorSettings& settings, ProgramCache* cache, const Visit& visit) {
  const bool trains = !graph.losses().empty();
  UnitPrograms programs(graph, remake_of(settings.recompute), {.training = trains}, cache);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!runs_here(settings, static_cast<int>(u)) || !graph.units[u].body) continue;
    const Program& program = programs[u];
    UnitSizes sizes = unit_sizes(graph, graph.units[u], graph.tensor.value_or(TensorSharing{}));
    sizes.compute = settings.compute;
    visit(RunList{u, program, program.forward, sizes});
    if (trains && programs.facts().units[u]) visit(RunList{u, program, program.both, sizes});
  }
}

void check_resolved(const GraphSpec& graph, const TensorSettings& settings) {
  if (!graph.tensor || graph.tensor->degree != settings.degree) {
    throw InternalError(fmt::format("graph \"{}\" lies over {} tp ranks, and the settings are for {}", graph.name,
                                    graph.tensor ? graph.tensor->degree : 0, settings.degree));
  }
  for (const ValueSpec& value : graph.values) {
    if ((!value.sequence_sharded || settings.sequence_parallel) && (!value.tp || settings.loss_parallel)) continue;
    throw InternalError(
        fmt::format("graph \"{}\": value {} is cut over tp, but the settings say otherwise", graph.name, value.name));
  }
}

// Trainable ones whose gradients the unit reduces: those of which it is the first user on this rank.
std::vector<const ParameterSpec*> held_parameters(const GraphSpec& graph, const TensorSettings& settings, int unit) {
  const UnitSpec& spec = graph.units[to_index(unit)];
  std::vector<const ParameterSpec*> held;
  for (const ParameterSpec& parameter : spec.parameters) held.push_back(&parameter);
  for (const std::string& name : spec.borrowed) {
    const auto users = graph.users(name);
    const auto first = std::ranges::find_if(users, [&](int user) { return runs_here(settings, user); });
    if (*first == unit) held.push_back(&graph.parameter(name));
  }
  std::erase_if(held, [](const ParameterSpec* parameter) { return !parameter->trainable; });
  return held;
}

void add_gradient_sums(TpTraffic& traffic, const GraphSpec& graph, const TensorSettings& settings, int unit) {
  std::int64_t partial = 0;
  std::int64_t copied = 0;
  for (const ParameterSpec* parameter : held_parameters(graph, settings, unit)) {
    if (parameter->partial_under_sequence_parallel) partial += num_elements(parameter->shape);
    if (!parameter->tp) continue;
    const LocalParameter local = local_parameter(*parameter, settings.degree, 0);
    for (std::size_t b = 0; b < local.boxes.size(); ++b) {
      const std::int64_t elements = num_elements(local.boxes[b].lengths);
      if (local.holders[b].size() == settings.degree) {
        partial += elements;  // a copy on every rank
      } else if (local.holders[b].size() > 1) {
        copied += elements;
      }
    }
  }
  if (partial > 0) traffic.partials.add(partial * bytes_of(settings.reduce), settings.reductions);
  if (copied > 0) traffic.copies.add(copied * bytes_of(settings.reduce), settings.reductions);
}

}  // namespace

TpTraffic tp_traffic(const GraphSpec& graph, const TensorSettings& settings, ProgramCache* programs) {
  TpTraffic traffic = gradient_traffic(graph, settings);
  for_lists(graph, settings, programs, [&](const RunList& list) {
    const DType statistics = list.is_forward() ? settings.statistics : DType::float64;
    const Exchanged made = exchanged(list.program, list.operations, list.sizes, statistics);
    traffic.sum.add(made.sum, settings.microbatches);
    traffic.gather.add(made.gather, settings.microbatches);
    traffic.scatter.add(made.scatter, settings.microbatches);
  });
  return traffic;
}

TpTraffic gradient_traffic(const GraphSpec& graph, const TensorSettings& settings) {
  check_resolved(graph, settings);
  TpTraffic traffic;
  if (graph.losses().empty()) return traffic;
  const BackwardFacts facts = backward_facts(graph);
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    if (runs_here(settings, u) && facts.units[to_index(u)]) add_gradient_sums(traffic, graph, settings, u);
  }
  return traffic;
}

Exchanged cp_traffic(const GraphSpec& graph, const TensorSettings& settings, int coordinate, ProgramCache* programs) {
  Exchanged total;
  if (graph.context.degree == 1) return total;
  for_lists(graph, settings, programs, [&](const RunList& list) {
    total.add(context_exchanged(list.program, list.operations, list.sizes, graph.context, coordinate),
              settings.microbatches);
  });
  return total;
}

CountedCalls ep_traffic(const GraphSpec& graph, const TensorSettings& settings, const std::vector<std::int64_t>& taken,
                        ProgramCache* programs) {
  CountedCalls total;
  if (graph.expert_degree == 1) return total;
  const std::int64_t times = settings.microbatches;
  for_lists(graph, settings, programs, [&](const RunList& list) {
    const auto bytes = [&](int value) { return local_bytes(list.program.values[to_index(value)], list.sizes); };
    for (const Operation& operation : list.operations) {
      const int moved = operation.in.empty() ? -1 : operation.in.front();
      if (operation.name == "count_held") total.add(bytes(moved), times);
      if (operation.name != "start" || !operation.exchange->moves_rows()) continue;
      const std::int64_t rows = local_shape(list.program.values[to_index(moved)].at, list.sizes).front();
      const bool returns = operation.exchange->kind == ExchangeSpec::Kind::from_experts;
      const std::int64_t sent = returns && !taken.empty() ? taken[list.unit] : times * rows;
      total.add({times, sent * (bytes(moved) / rows)});
    }
  });
  return total;
}

}  // namespace orthant
