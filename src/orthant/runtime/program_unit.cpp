#include "orthant/runtime/program_unit.h"

#include <fmt/format.h>

#include <utility>

#include "orthant/base/error.h"

namespace orthant {

void ProgramUnit::compile(const Remake& remake, const std::vector<bool>& needs, nn::TensorAxis* tensor) {
  const UnitSpec& unit = parameters_.spec();
  const GraphSpec& graph = parameters_.graph();
  ProgramOptions options{.needs = needs};
  if (unit.recomputable) options.remake = remake;
  training_.emplace(compile_unit(graph, unit, options), parameters_, tables_, tensor);
  if (unit.logits) {
    options.gradients_in_forward = true;
    in_forward_.emplace(compile_unit(graph, unit, options), parameters_, tables_, tensor);
  }
  evaluating_.emplace(compile_unit(graph, unit, {.training = false}), parameters_, tables_, tensor);
}

Tensors ProgramUnit::forward(const Tensors& /*inputs*/, nn::Pass& /*pass*/) {
  throw InternalError(fmt::format("unit {} runs by its programs", parameters_.spec().name));
}

std::vector<std::unique_ptr<Unit>> build_units(ParameterStore& parameters, Tables& tables) {
  std::vector<std::unique_ptr<Unit>> units;
  const auto& specs = parameters.graph().units;
  for (int u = 0; u < static_cast<int>(specs.size()); ++u) {
    if (!parameters.runs(u)) {
      units.push_back(nullptr);
      continue;
    }
    const UnitSpec& spec = specs[static_cast<std::size_t>(u)];
    if (!spec.body) throw InternalError(fmt::format("unit {} of kind {} has no operations", spec.name, spec.kind));
    units.push_back(std::make_unique<ProgramUnit>(parameters.unit(u), tables));
  }
  return units;
}

}  // namespace orthant
