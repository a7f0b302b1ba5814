// The activations of configurations as nn knows them.
#pragma once

#include "orthant/nn/activation.h"
#include "orthant/specs/activation.h"

namespace orthant {

constexpr nn::Activation nn_activation(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return nn::Activation::gelu;
    case Activation::gelu_new:
      return nn::Activation::gelu_tanh;
    case Activation::relu:
      return nn::Activation::relu;
    case Activation::silu:
      break;
  }
  return nn::Activation::silu;
}

}  // namespace orthant
