// Dropout on a CUDA device: the draw as kernels take it, and the kernel that does nothing else. Local.
#pragma once

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/dropout/dropout.h"

namespace orthant::nn::device {

// `struct Grid` of cuda/prelude.cu. As it stands here it drops nothing.
struct KernelGrid {
  std::uint64_t stream = 0;
  const std::uint64_t* stream_at = nullptr;
  std::uint64_t first_row = 0;
  std::uint32_t key[2] = {0, 0};
  std::uint32_t threshold = 0;
  float factor = 1;
  std::uint32_t positions = 1;
  std::uint32_t first_token = 0;
  std::uint32_t first_position = 0;
  std::uint32_t first_channel = 0;
  std::uint32_t second_piece = 1U << 20;
  std::uint32_t jump = 0;
  KernelDivisor by_positions{1};
};
static_assert(sizeof(KernelGrid) == 72);

// `struct KeyedGrid` of it, which has the last two where it is UNPADDED.
struct KernelKeyedGrid {
  KernelGrid grid;
  std::uint32_t round_keys[20] = {};  // both words of each of Philox's ten rounds
  const std::int64_t* token_rows = nullptr;
  const std::int64_t* token_positions = nullptr;
};
static_assert(sizeof(KernelKeyedGrid) == 168);

// Of a grid over a matrix of so many tokens; null: nothing is dropped. InternalError beyond 2^31 tokens of all ranks.
KernelGrid kernel_grid(const DropoutGrid* grid, std::int64_t tokens);
KernelKeyedGrid keyed_grid(const DropoutGrid* grid, std::int64_t tokens);

// The value of ALIGNED of kernels that drop: a vector of 16 bytes lies in one block of the stream, too.
bool aligned(const DropoutGrid* grid);

// The value of UNPADDED of kernels that drop: rows and positions of tokens lie in memory.
int unpadded(const DropoutGrid* grid);

// Whether the kernel takes x, whose last dim holds channels.
bool serves_dropout(const at::Tensor& x);

// residual (where defined) + x times the grid's factors, rounded in between; the grid may be null.
at::Tensor dropout_add(const DropoutGrid* grid, const at::Tensor& x, const at::Tensor& residual);

}  // namespace orthant::nn::device
