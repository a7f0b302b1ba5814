#include "orthant/interpret/binders.h"

#include <fmt/format.h>

#include <map>

#include "orthant/base/error.h"

namespace orthant {
namespace {

const std::map<std::string_view, Binder>& binders() {
  static const auto all = [] {
    std::map<std::string_view, Binder> found;
    const auto add = [&](const std::vector<NamedBinder>& some) {
      for (const auto& binder : some) found.emplace(binder.name, binder.bind);
    };
    add(exchange_binders());
#define ORTHANT_OPERATION(folder) add(folder##_binders());
#include "orthant/ops/folders.inc"
#undef ORTHANT_OPERATION
    return found;
  }();
  return all;
}

}  // namespace

Step bind_operation(const Binding& binding) {
  const auto found = binders().find(binding.operation.name);
  if (found == binders().end()) {
    throw InternalError(
        fmt::format("unit {}: no code runs the operation \"{}\"", binding.unit, binding.operation.name));
  }
  try {
    return found->second(binding);
  } catch (const InternalError& error) {
    throw InternalError(
        fmt::format("unit {}, operation \"{}\": {}", binding.unit, binding.operation.name, error.message()));
  }
}

}  // namespace orthant
