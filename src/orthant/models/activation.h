// Activation functions by the names that Hugging Face gives them.
#pragma once

#include <optional>
#include <string_view>

#include "orthant/base/json_reader.h"

namespace orthant {

enum class ActivationFunction { gelu, gelu_new, relu, silu };  // gelu: exact, by erf; gelu_new: its tanh approximation

constexpr std::string_view activation_name(ActivationFunction activation) {
  switch (activation) {
    case ActivationFunction::gelu:
      return "gelu";
    case ActivationFunction::gelu_new:
      return "gelu_new";
    case ActivationFunction::relu:
      return "relu";
    case ActivationFunction::silu:
      return "silu";
  }
  return "";
}

// As operations name it: see ops/functions.h.
constexpr const char* operation_name(ActivationFunction activation) {
  switch (activation) {
    case ActivationFunction::gelu:
      return "gelu";
    case ActivationFunction::gelu_new:
      return "gelu_tanh";
    case ActivationFunction::relu:
      return "relu";
    case ActivationFunction::silu:
      return "silu";
  }
  return "";
}

// Also by the other names of the same function: gelu_python, gelu_pytorch_tanh, gelu_fast, swish. Nothing when unknown.
std::optional<ActivationFunction> activation_named(std::string_view name);

// The document's kind of error, with the nearest name, when the value is none of them.
ActivationFunction read_activation(JsonReader& reader, std::string_view key, ActivationFunction default_activation);

}  // namespace orthant
