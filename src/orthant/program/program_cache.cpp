#include "orthant/program/program_cache.h"

#include <algorithm>

namespace orthant {

ProgramCache::Key ProgramCache::key_of(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options) {
  Key key{.needs = options.needs,
          .parameters = {},
          .edges = {},
          .body = unit.body,
          .context = {},
          .cached = graph.cached,
          .expert_degree = graph.expert_degree};
  if (graph.context.degree > 1) key.context = graph.context.way;
  const auto add = [&](const ParameterSpec& parameter, std::size_t prefix) {
    key.parameters.push_back({.name = parameter.name.substr(prefix),
                              .shape = parameter.shape,
                              .tp = parameter.tp,
                              .joined = parameter.joined,
                              .trainable = parameter.trainable,
                              .expert = parameter.expert.has_value()});
  };
  for (const auto& parameter : unit.parameters) {
    add(parameter, parameter.name.starts_with(unit.name + ".") ? unit.name.size() + 1 : 0);
  }
  for (const auto& name : unit.borrowed) add(graph.parameter(name), 0);
  for (const auto* names : {&unit.inputs, &unit.outputs}) {
    for (const auto& name : *names) {
      const ValueSpec& value = graph.value(name);
      key.edges.push_back({value.sequence_sharded, value.tp});
    }
  }
  return key;
}

const Program& ProgramCache::of(const GraphSpec& graph, const UnitSpec& unit, const ProgramOptions& options) {
  const TensorSharing sharing = graph.tensor.value_or(options.sharing);
  const Mode mode{sharing.degree > 1,           sharing.sequence_parallel, sharing.regather,
                  sharing.loss_parallel,        options.remake.all,        options.remake.operations,
                  options.gradients_in_forward, options.training};
  Key key = key_of(graph, unit, options);
  auto& alike = programs_[mode];
  const auto found = std::ranges::find(alike, key, &std::pair<Key, Program>::first);
  if (found != alike.end()) return found->second;
  ++compiled_;
  Program program = compile_unit(graph, unit, options);
  return alike.emplace_back(std::move(key), std::move(program)).second;
}

}  // namespace orthant
