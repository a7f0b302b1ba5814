#include "orthant/specs/activation.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "orthant/base/nearest.h"

namespace orthant {
namespace {

constexpr std::array<Activation, 4> kActivations = {Activation::gelu, Activation::gelu_new, Activation::relu,
                                                    Activation::silu};

constexpr std::array<std::pair<std::string_view, Activation>, 4> kOtherNames = {
    {{"gelu_python", Activation::gelu},
     {"gelu_pytorch_tanh", Activation::gelu_new},
     {"gelu_fast", Activation::gelu_new},
     {"swish", Activation::silu}}};

}  // namespace

std::optional<Activation> activation_named(std::string_view name) {
  for (const auto activation : kActivations) {
    if (activation_name(activation) == name) return activation;
  }
  for (const auto& [other, activation] : kOtherNames) {
    if (other == name) return activation;
  }
  return std::nullopt;
}

Activation read_activation(JsonReader& reader, std::string_view key, Activation default_activation) {
  const auto name = reader.get<std::string>(key, std::string(activation_name(default_activation)));
  if (const auto found = activation_named(name)) return *found;
  std::vector<std::string> names;
  for (const auto activation : kActivations) names.emplace_back(activation_name(activation));
  reader.fail(key, "unknown value \"" + name + "\"", did_you_mean(name, names));
}

}  // namespace orthant
