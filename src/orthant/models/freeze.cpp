#include "orthant/models/freeze.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/base/wildcard.h"
#include "orthant/graph/backward.h"

namespace orthant {
namespace {

// Elements of the trainable matrices that a unit multiplies with: its weight_flops are proportional to them.
std::vector<double> trainable_elements(const GraphSpec& spec) {
  std::vector<double> counts;
  const auto elements = [](const ParameterSpec& parameter) {
    const bool counted = parameter.trainable && parameter.shape.size() > 1;
    return counted ? static_cast<double>(num_elements(parameter.shape)) : 0;
  };
  for (const auto& unit : spec.units) {
    double count = 0;
    for (const auto& parameter : unit.parameters) count += elements(parameter);
    for (const auto& name : unit.borrowed) count += elements(spec.parameter(name));
    counts.push_back(count);
  }
  return counts;
}

bool is_trained(const GraphSpec& spec, const UnitSpec& unit) {
  return std::ranges::any_of(unit.parameters, &ParameterSpec::trainable) ||
         std::ranges::any_of(unit.borrowed, [&](const auto& name) { return spec.parameter(name).trainable; });
}

[[noreturn]] void refuse_pattern(const GraphSpec& spec, const std::string& pattern) {
  std::vector<std::string> names;
  std::vector<std::string> beginnings;
  for (const auto& unit : spec.units) {
    for (const auto& parameter : unit.parameters) {
      names.push_back(parameter.name);
      auto beginning = parameter.name.substr(0, parameter.name.find('.')) + ".*";
      if (std::find(beginnings.begin(), beginnings.end(), beginning) == beginnings.end()) {
        beginnings.push_back(std::move(beginning));
      }
    }
  }
  const auto near = nearest(pattern, names);
  throw ConfigError(fmt::format("freeze: pattern \"{}\" matches no parameter of {}", pattern, spec.name),
                    {.remedy = near ? fmt::format("did you mean \"{}\"?", *near)
                                    : fmt::format("patterns match whole names, * is any text: {} together match all",
                                                  fmt::join(beginnings, ", "))});
}

}  // namespace

// Parameters that one product uses lie side by side, so they are trained or frozen together.
static void check_joined(const UnitSpec& unit) {
  for (const auto& frozen : unit.parameters) {
    if (frozen.trainable || frozen.joined.empty()) continue;
    for (const auto& other : unit.parameters) {
      if (!other.trainable || other.joined != frozen.joined) continue;
      throw ConfigError(
          fmt::format("model.freeze freezes {} but not {}: one product uses both", frozen.name, other.name),
          {.remedy = "freeze both or neither"});
    }
  }
}

void freeze(GraphSpec& spec, const std::vector<std::string>& patterns) {
  const auto before = trainable_elements(spec);
  for (const auto& pattern : patterns) {
    bool matched = false;
    for (auto& unit : spec.units) {
      for (auto& parameter : unit.parameters) {
        if (!matches_pattern(pattern, parameter.name)) continue;
        parameter.trainable = false;
        matched = true;
      }
    }
    if (!matched) refuse_pattern(spec, pattern);
  }
  for (const auto& unit : spec.units) check_joined(unit);
  const auto after = trainable_elements(spec);
  for (std::size_t i = 0; i < spec.units.size(); ++i) {
    if (before[i] > 0) spec.units[i].cost.weight_flops *= after[i] / before[i];
    if (!is_trained(spec, spec.units[i])) spec.units[i].cost.deferred_bytes = 0;
  }
  mark_gradients(spec);
}

}  // namespace orthant
