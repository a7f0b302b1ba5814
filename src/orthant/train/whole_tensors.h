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

// Which parameters' tensors: those of trainable ones alone, or of all.
enum class Covered { trainable, all };

// Of any tensors that lie as the parameters do: `owned(b)` is this rank's owned range of buffer b, in `dtype`.
// Collective over fsdp, tp and pp, as are the others.
WholeTensors whole_tensors(const Trainer& trainer, Covered covered, DType dtype,
                           const std::function<at::Tensor(std::size_t buffer)>& owned);
// Of the optimizer's copies, and of trainable ones' gradients as the last step left them.
WholeTensors whole_weights(const Trainer& trainer);
WholeTensors whole_gradients(const Trainer& trainer);

}  // namespace orthant
