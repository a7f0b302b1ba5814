// The activations of configurations as nn knows them.
#pragma once

#include "orthant/nn/activation.h"
#include "orthant/specs/activation.h"

namespace orthant {

constexpr nn::ActivationKind nn_activation(ActivationFunction activation) {
  switch (activation) {
    case ActivationFunction::gelu:
      return nn::ActivationKind::gelu;
    case ActivationFunction::gelu_new:
      return nn::ActivationKind::gelu_tanh;
    case ActivationFunction::relu:
      return nn::ActivationKind::relu;
    case ActivationFunction::silu:
      break;
  }
  return nn::ActivationKind::silu;
}

}  // namespace orthant
