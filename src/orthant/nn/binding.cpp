#include "orthant/nn/binding.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant {
std::string Binding::site() const {
  return fmt::format("{}.{}", unit, operation.attributes.text("site"));
}

bool Binding::owns_input() const {
  const int value = in(0);
  const auto holds = [&](const std::vector<int>& values) { return std::ranges::find(values, value) != values.end(); };
  return holds(operation.frees) && !holds(program.inputs) && !holds(program.seeds) && !holds(program.kept);
}

}  // namespace orthant
