// Attention of a CUDA device by the libraries inside libtorch: cuDNN and FlashAttention 2, over queries and keys that
// may be of different tokens. Internal to this layer. Local.
#pragma once

#include <ATen/core/Tensor.h>

namespace orthant::nn::device {

// Or gradients of them: views [rows, heads, tokens, head_size] with stride 1 along the last.
struct HeadViews {
  at::Tensor q, k, v;
};

struct AttendedViews {
  at::Tensor out;  // [rows, heads, queries, head_size]
  at::Tensor lse;  // [rows, heads, queries]
};

struct LibraryCall {
  bool causal = false;      // as many queries as keys, of the same tokens
  bool repeatable = false;  // backward adds in one order: Note [Repeatable attention]
};

// Whether the libraries have heads of so many channels.
bool library_has(std::int64_t head_size);

AttendedViews library_forward(const HeadViews& heads, const LibraryCall& call);
// From out and lse over all keys of the queries, which may be more than these.
HeadViews library_backward(const HeadViews& heads, const AttendedViews& attended, const at::Tensor& d_out,
                           const LibraryCall& call);

}  // namespace orthant::nn::device
