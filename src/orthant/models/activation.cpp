#include "orthant/models/activation.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orthant/base/nearest.h"

namespace orthant {
namespace {

constexpr std::array<ActivationFunction, 4> kActivations = {ActivationFunction::gelu, ActivationFunction::gelu_new,
                                                            ActivationFunction::relu, ActivationFunction::silu};

constexpr std::array<std::pair<std::string_view, ActivationFunction>, 4> kOtherNames = {
    {{"gelu_python", ActivationFunction::gelu},
     {"gelu_pytorch_tanh", ActivationFunction::gelu_new},
     {"gelu_fast", ActivationFunction::gelu_new},
     {"swish", ActivationFunction::silu}}};

}  // namespace

std::optional<ActivationFunction> activation_named(std::string_view name) {
  for (const auto activation : kActivations) {
    if (activation_name(activation) == name) return activation;
  }
  for (const auto& [other, activation] : kOtherNames) {
    if (other == name) return activation;
  }
  return std::nullopt;
}

ActivationFunction read_activation(JsonReader& reader, std::string_view key, ActivationFunction default_activation) {
  const auto name = reader.get<std::string>(key, std::string(activation_name(default_activation)));
  if (const auto found = activation_named(name)) return *found;
  std::vector<std::string> names;
  for (const auto activation : kActivations) names.emplace_back(activation_name(activation));
  reader.fail(key, "unknown value \"" + name + "\"", did_you_mean(name, names));
}

}  // namespace orthant
