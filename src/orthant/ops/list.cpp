#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/ops/rules.h"

namespace orthant {
namespace {

const std::vector<OpRule>& all_rules() {
  static const auto kRules = [] {
    std::vector<OpRule> all;
#define ORTHANT_OPERATION(folder) \
  for (const auto& rule : folder##_rules()) all.push_back(rule);
#include "orthant/ops/folders.inc"
#undef ORTHANT_OPERATION
    return all;
  }();
  return kRules;
}

}  // namespace

const OpRule& op_rule(std::string_view name) {
  const auto found = std::ranges::find(all_rules(), name, &OpRule::name);
  if (found == all_rules().end()) throw InternalError(fmt::format("no operation is named \"{}\"", name));
  return *found;
}

const std::vector<std::string>& remade_names() {
  static const auto kNames = [] {
    std::vector<std::string> names;
    for (const auto& rule : all_rules()) {
      if (rule.remade_by_name) names.emplace_back(rule.name);
    }
    std::ranges::sort(names);
    names.insert(names.end(), {"swiglu", "gelu", "gelu_tanh", "relu", "silu", "tanh"});
    return names;
  }();
  return kNames;
}

}  // namespace orthant
