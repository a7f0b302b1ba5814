#include "orthant/runtime/recorded_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

const std::string& used_name(const ParameterSpec& parameter, const BodyParameter& use) {
  return use.joined ? parameter.joined : parameter.name;
}

void check_used(const std::string& unit, const std::vector<ParameterSpec>& parameters, const Body& body) {
  for (const auto& parameter : parameters) {
    const bool used = std::ranges::any_of(
        body.parameters, [&](const BodyParameter& use) { return used_name(parameter, use) == use.name; });
    if (used) continue;
    throw ConfigError(fmt::format("unit {}: no recorded operation uses its parameter {}", unit, parameter.name),
                      {.remedy = "leave it out, or use it by that name"});
  }
}

void check_known(const std::string& unit, const std::vector<ParameterSpec>& parameters, const Body& body) {
  for (const auto& use : body.parameters) {
    std::vector<std::string> names;
    for (const auto& parameter : parameters) names.push_back(used_name(parameter, use));
    if (std::ranges::find(names, use.name) != names.end()) continue;
    throw ConfigError(fmt::format("unit {} uses {} \"{}\", which is not among its parameters", unit,
                                  use.joined ? "parameters joined as" : "a parameter", use.name),
                      {.remedy = names.empty() ? "add it to Recorded::parameters" : did_you_mean(use.name, names)});
  }
}

}  // namespace

Body recorded_body(const std::string& unit, const Recorded& recorded, std::size_t inputs, std::size_t outputs) {
  if (!recorded.record) throw ConfigError(fmt::format("unit {} has no operations", unit));
  if (outputs != 1) {
    throw ConfigError(fmt::format("unit {} is recorded and names {} outputs", unit, outputs),
                      {.remedy = "name one: a recorded unit has one output"});
  }
  Recorder recorder;
  const Value output = recorded.record(recorder);
  if (output.id < 0) throw ConfigError(fmt::format("unit {}: what it records gives no value", unit));
  recorder.output(output);
  Body body = recorder.finish();
  if (body.inputs.size() != inputs) {
    throw ConfigError(fmt::format("unit {} records {} inputs and names {}", unit, body.inputs.size(), inputs),
                      {.remedy = "take each by tokens(), rows() or field(), in the order of their names"});
  }
  return body;
}

std::vector<ParameterSpec> named_parameters(const std::string& unit, std::vector<ParameterSpec> parameters,
                                            const Body& body) {
  check_used(unit, parameters, body);
  check_known(unit, parameters, body);
  for (auto& parameter : parameters) {
    if (parameter.init.kind == Init::Kind::given) {
      throw ConfigError(fmt::format("unit {}: nobody gives the first values of {}", unit, parameter.name),
                        {.remedy = "set its init to zeros, ones, normal or uniform"});
    }
    parameter.decay = parameter.decay && parameter.shape.size() > 1;
    parameter.name = fmt::format("{}.{}", unit, parameter.name);
  }
  return parameters;
}

}  // namespace orthant
