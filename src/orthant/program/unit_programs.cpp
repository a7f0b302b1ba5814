#include "orthant/program/unit_programs.h"

#include <algorithm>
#include <utility>

namespace orthant {

UnitPrograms::UnitPrograms(const GraphSpec& graph, Remake remake, ProgramOptions options, ProgramCache* cache)
    : graph_(graph),
      remake_(std::move(remake)),
      options_(std::move(options)),
      facts_(backward_facts(graph)),
      own_(cache == nullptr ? std::make_unique<ProgramCache>() : nullptr),
      cache_(cache == nullptr ? *own_ : *cache) {}

std::vector<bool> UnitPrograms::needs(const UnitSpec& unit) const {
  std::vector<bool> found;
  for (const auto& name : unit.inputs) {
    const auto value = std::ranges::find(graph_.values, name, &ValueSpec::name);
    found.push_back(value != graph_.values.end() &&
                    facts_.values[static_cast<std::size_t>(value - graph_.values.begin())]);
  }
  return found;
}

const Program& UnitPrograms::operator[](std::size_t index) {
  const UnitSpec& unit = graph_.units[index];
  ProgramOptions options = options_;
  options.needs = needs(unit);
  if (unit.recomputable) options.remake = remake_;
  return cache_.of(graph_, unit, options);
}

}  // namespace orthant
