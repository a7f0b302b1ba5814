// From tensors of a CUDA device to its kernels (cuda/kernel.h): which tensors they serve, on which stream they run. The
// functions themselves lie in namespaces `device` beside `plain` and `fused`. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include "orthant/cuda/kernel.h"

namespace orthant::nn::device {

// Whether kernels compute on this device's memory: a CUDA device's, or in tests the host's, on an emulated card.
bool has_kernels(at::Device device);

// Whether kernels take this tensor: a contiguous one of bfloat16, float16 or float32 on a CUDA device where kernels can
// be compiled. Everything else takes plain formulas.
bool serves(const at::Tensor& x);

// The value of ELEMENT for a tensor that is served.
int element(const at::Tensor& x);
int element(at::ScalarType dtype);

// Elements of a 16-byte vector.
std::int64_t lane(const at::Tensor& x);

// The value of ALIGNED: whether rows of `width` elements of all these tensors begin at multiples of 16 bytes. Undefined
// tensors do not count.
bool aligned(std::int64_t width, std::initializer_list<at::Tensor> tensors);

// Streams on which parts of a step may run side by side. Blocks of a kernel that wait for each other leave room for as
// many such kernels: see attention_backward.cu.
inline constexpr int kMostSideBySide = 4;

// The stream on which libtorch's own operations on this tensor would run; null on the host.
cuda::StreamHandle stream(const at::Tensor& x);

// Whether the same holds of a matrix whose rows are dense and may lie apart, as those of rows_at_borders() do.
bool serves_rows(const at::Tensor& x);

// An uninitialised matrix of x's dtype, whose rows begin at 16-byte borders: products that read or write rows at odd
// places take several times as long.
at::Tensor rows_at_borders(std::int64_t rows, std::int64_t width, const at::Tensor& x);

// A thread for `each` of `items`, 256 to a block, on x's stream.
cuda::LaunchShape threads_for(std::int64_t items, const at::Tensor& x, std::int64_t each = 1);

// `struct Divisor` of cuda/prelude.cu: n / by for n below 2^31, with 1 <= by < 2^31.
struct KernelDivisor {
  std::uint32_t factor = 0;
  std::uint32_t shift = 0;

  explicit KernelDivisor(std::uint32_t by);
};

// `struct Vectors` of cuda/prelude.cu: a matrix of x's elements that has rows of `width` elements, at least one. A
// thread takes a pair of vectors.
struct KernelVectors {
  std::uint32_t pairs = 0;
  std::uint32_t row_vectors;
  std::uint32_t row_pairs;
  KernelDivisor by_row;
  int width;

  KernelVectors(const at::Tensor& x, std::int64_t width);
};

// 16-byte vectors of a matrix of x's elements that has rows of `width`, each row counted by itself.
std::int64_t num_vectors(const at::Tensor& x, std::int64_t width);
// Whether 31 bits count them, as kernels do that divide by the vectors of a row, and whether 31 bits count its width.
bool counts_vectors(const at::Tensor& x, std::int64_t width);

// The tensor's memory as the kernels name it; null when it is undefined.
template <class T = void>
T* data(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}

}  // namespace orthant::nn::device
