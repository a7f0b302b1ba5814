// Activation functions by the names that Hugging Face gives them.
#pragma once

#include <string_view>

namespace orthant {

enum class Activation { gelu, gelu_new, relu };  // gelu: exact, by erf; gelu_new: its tanh approximation

constexpr std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_new:
      return "gelu_new";
    case Activation::relu:
      return "relu";
  }
  return "";
}

}  // namespace orthant
