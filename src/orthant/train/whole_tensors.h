// Parameters and gradients as whole tensors on the host, from the parts that ranks hold: what a comparison of meshes
// compares.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "orthant/train/trainer.h"

namespace orthant {

struct WholeTensors {
  std::map<std::string, at::Tensor> tensors;  // by parameter
  bool copies_equal = true;                   // this rank's copies have the bits of the first holder's
};

// Of the optimizer's copies, and of trainable ones' gradients as the last step left them. Collective over fsdp and tp.
WholeTensors whole_weights(const Trainer& trainer);
WholeTensors whole_gradients(const Trainer& trainer);

}  // namespace orthant
