// Dropout factors drawn where they are used: element i of a stream is dropped when RandomStream::short_bits(i) is below
// a threshold. See Note [Kernels] in isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

struct DropoutDraw {
  std::uint32_t key[2];
  std::uint64_t stream;
  std::uint32_t threshold;  // floor(p * 2^16)
  double factor;            // of an element that stays: the inverse of the share that does, 1 - threshold / 2^16
};

// Each works on `count` elements, of which the first has index `first` in the stream; f is their factors.
template <class T>
struct DropoutKernels {
  void (*factors)(T* out, const DropoutDraw& draw, std::uint64_t first, std::int64_t count);            // f
  void (*scale)(T* out, const T* x, const DropoutDraw& draw, std::uint64_t first, std::int64_t count);  // x f
  void (*add)(T* out, const T* residual, const T* x, const DropoutDraw& draw, std::uint64_t first,
              std::int64_t count);  // residual + x f
};

ORTHANT_KERNELS(DropoutKernels<float>);
ORTHANT_KERNELS(DropoutKernels<double>);

}  // namespace orthant::nn::kernels
