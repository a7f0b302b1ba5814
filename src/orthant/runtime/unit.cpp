#include "orthant/runtime/unit.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/base/error.h"

namespace orthant {

Unit::Unit(UnitParameters parameters, Tables& tables, std::unique_ptr<nn::ModuleCode> module)
    : parameters_(std::move(parameters)), tables_(tables), module_(std::move(module)) {
  const UnitSpec& spec = parameters_.spec();
  if (!spec.body) throw InternalError(fmt::format("unit {} of kind {} has no operations", spec.name, spec.kind));
}

void Unit::compile(const Remake& remake, const std::vector<bool>& needs, nn::TensorAxis* tensor) {
  const UnitSpec& unit = parameters_.spec();
  const GraphSpec& graph = parameters_.graph();
  const auto make = [&](std::optional<BoundProgram>& place, const ProgramOptions& options) {
    place.emplace(compile_unit(graph, unit, options), parameters_, tables_, tensor, module_.get());
  };
  ProgramOptions options{.needs = needs};
  if (unit.recomputable) options.remake = remake;
  make(training_, options);
  if (unit.logits) {
    options.gradients_in_forward = true;
    make(in_forward_, options);
  }
  make(evaluating_, {.training = false});
}

std::vector<std::unique_ptr<Unit>> build_units(ParameterStore& parameters, Tables& tables) {
  std::vector<std::unique_ptr<Unit>> units;
  for (int u = 0; u < static_cast<int>(parameters.graph().units.size()); ++u) {
    units.push_back(parameters.runs(u) ? std::make_unique<Unit>(parameters.unit(u), tables) : nullptr);
  }
  return units;
}

}  // namespace orthant
