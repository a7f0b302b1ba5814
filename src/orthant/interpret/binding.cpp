#include "orthant/interpret/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orthant/base/error.h"

namespace orthant {
namespace {

const std::map<std::string_view, Binder>& binders() {
  static const auto all = [] {
    std::map<std::string_view, Binder> found;
    for (const auto& some :
         {linear_binders(), norm_binders(), head_norm_binders(), attention_binders(), activation_binders(),
          embedding_binders(), loss_binders(), exchange_binders(), simple_binders()}) {
      for (const auto& binder : some) found.emplace(binder.name, binder.bind);
    }
    return found;
  }();
  return all;
}

}  // namespace

std::string Binding::site() const {
  return fmt::format("{}.{}", unit, operation.attributes.text("site"));
}

bool Binding::owns_input() const {
  const int value = in(0);
  const auto holds = [&](const std::vector<int>& values) { return std::ranges::find(values, value) != values.end(); };
  return holds(operation.frees) && !holds(program.inputs) && !holds(program.seeds) && !holds(program.kept);
}

Step bind_operation(const Binding& binding) {
  const auto found = binders().find(binding.operation.name);
  if (found == binders().end()) {
    throw InternalError(
        fmt::format("unit {}: no code runs the operation \"{}\"", binding.unit, binding.operation.name));
  }
  return found->second(binding);
}

}  // namespace orthant
