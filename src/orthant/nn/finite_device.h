// Whether a tensor on a CUDA device is finite, found out without waiting for it. Local.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn::device {

// Sets `found`, a float32 scalar on the device, to NaN when an element of x is NaN or infinite; it stays as it is
// otherwise. For tensors that serves() takes.
void find_not_finite(const at::Tensor& found, const at::Tensor& x);

}  // namespace orthant::nn::device
