#include "orthant/program/unit_programs.h"

#include <algorithm>
#include <utility>

namespace orthant {

UnitPrograms::UnitPrograms(const GraphSpec& graph, Remake remake, ProgramOptions options)
    : graph_(graph), remake_(std::move(remake)), options_(std::move(options)), facts_(backward_facts(graph)) {}

std::vector<bool> UnitPrograms::needs(const UnitSpec& unit) const {
  std::vector<bool> found;
  for (const auto& name : unit.inputs) {
    const auto value = std::ranges::find(graph_.values, name, &ValueSpec::name);
    found.push_back(value != graph_.values.end() &&
                    facts_.values[static_cast<std::size_t>(value - graph_.values.begin())]);
  }
  return found;
}

UnitPrograms::Key UnitPrograms::key_of(const UnitSpec& unit) const {
  Key key{&*unit.body, {}, needs(unit), {}};
  const auto add = [&](const ParameterSpec& parameter) {
    key.trained.push_back(parameter.trainable);
    key.shared.push_back(parameter.tp.has_value());
  };
  for (const auto& parameter : unit.parameters) add(parameter);
  for (const auto& name : unit.borrowed) add(graph_.parameter(name));
  for (const auto* names : {&unit.inputs, &unit.outputs}) {
    for (const auto& name : *names) {
      key.shared.push_back(graph_.value(name).sequence_sharded);
      key.shared.push_back(graph_.value(name).tp.has_value());
    }
  }
  return key;
}

const Program& UnitPrograms::operator[](std::size_t index) {
  const UnitSpec& unit = graph_.units[index];
  const auto [place, added] = programs_.try_emplace(key_of(unit));
  if (added) {
    ProgramOptions options = options_;
    options.needs = place->first.needed;
    if (unit.recomputable) options.remake = remake_;
    place->second = compile_unit(graph_, unit, options);
  }
  return place->second;
}

}  // namespace orthant
