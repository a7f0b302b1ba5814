// RMSNorm and LayerNorm over rows [rows, width]. See Note [Kernels] in isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"

namespace orthant::nn::kernels {

// `statistics` has one number per row for RMSNorm (rstd), two for LayerNorm (mean, rstd).
//
// backward has two parts: dx is written when it is no nullptr; sums over the rows are added to dweight and dbias when
// dweight is none. Both in one call or in two give the same bits.
template <class T>
struct NormKernels {
  void (*rms_forward)(T* y, T* statistics, const T* x, const T* weight, std::int64_t rows, std::int64_t width, T eps);
  void (*rms_backward)(T* dx, T* dweight, const T* gy, const T* x, const T* statistics, const T* weight,
                       std::int64_t rows, std::int64_t width);
  void (*layer_forward)(T* y, T* statistics, const T* x, const T* weight, const T* bias, std::int64_t rows,
                        std::int64_t width, T eps);
  void (*layer_backward)(T* dx, T* dweight, T* dbias, const T* gy, const T* x, const T* statistics, const T* weight,
                         std::int64_t rows, std::int64_t width);
};

ORTHANT_KERNELS(NormKernels<float>);
ORTHANT_KERNELS(NormKernels<double>);

}  // namespace orthant::nn::kernels
