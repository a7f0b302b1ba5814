// Parameters and gradients as whole tensors on the host, from the parts that ranks hold: what a comparison of meshes
// compares.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "orthant/train/trainer.h"

namespace orthant {

struct WholeTensors {
  std::map<std::string, at::Tensor> tensors;  // by parameter
  bool copies_equal = true;                   // this rank's copies have the bits of the first holder's
};

// Of any tensors that lie as the parameters do: `owned(b)` is this rank's owned range of buffer b, undefined for none.
// Collective over fsdp and tp, as are the others.
WholeTensors whole_tensors(const Trainer& trainer, const std::function<at::Tensor(std::size_t buffer)>& owned);
// Of the optimizer's copies, and of trainable ones' gradients as the last step left them.
WholeTensors whole_weights(const Trainer& trainer);
WholeTensors whole_gradients(const Trainer& trainer);

}  // namespace orthant
