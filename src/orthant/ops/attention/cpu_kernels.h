// Attention of the heads of one sample that share a key/value head: softmax(q k^T * scale) v and its gradients, blocked
// for the caches, on heads as they lie in a joined [sequence, (heads + 2 kv_heads) * head_size] matrix. Keys that a
// causal mask or padding hides cost nothing. Note [Attention blocks] in attention.inc says how. See Note [Kernels] in
// isa.h.
#pragma once

#include <cstdint>

#include "orthant/nn/kernels/isa.h"
#include "orthant/ops/dropout/cpu_kernels.h"

namespace orthant::nn::kernels {

// Dropout of the probabilities: of head h, query i, key j of a group, element first + h * head_step + i * query_step +
// j.
template <class T>
struct AttentionDropout {
  decltype(DropoutKernels<T>::factors) factors = nullptr;  // nullptr: none
  DropoutDraw draw = {};
  std::uint64_t first = 0;
  std::uint64_t head_step = 0;
  std::uint64_t query_step = 0;
};

// A group: `heads` query heads and the key/value head they share. Rows of q, k, v lie `stride` apart; head h of q
// begins h * head_size further. Rows of out lie out_stride apart, lse is [heads, sequence].
template <class T>
struct AttentionGroup {
  std::int64_t sequence = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  bool causal = false;
  std::int64_t window = 0;  // of a causal one: query i sees keys after i - window; 0: all before it
  T scale = 1;
  const bool* key_mask = nullptr;  // [sequence], true = attend; nullptr: all
  const T* cos = nullptr;          // [sequence, head_size / 2]; nullptr: no rotation
  const T* sin = nullptr;
  AttentionDropout<T> dropout = {};

  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
  std::int64_t stride = 0;
  T* out = nullptr;
  std::int64_t out_stride = 0;
  T* lse = nullptr;
  T* scratch = nullptr;  // scratch_elements() of them, 64-byte aligned: ops/attention_workspace.h
};

// Rows of d_out lie as those of out; rows of dq, dk, dv `stride` apart as those of q.
template <class T>
struct AttentionGradients {
  const T* d_out = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  std::int64_t stride = 0;
};

template <class T>
struct AttentionKernels {
  std::int64_t (*scratch_elements)(std::int64_t sequence, std::int64_t head_size) = nullptr;

  // Rotates q and k in place when there is a table, then writes out and lse: the logarithm of the sum of exponentials,
  // 0 for a query that sees no key (its output is 0).
  void (*forward)(const AttentionGroup<T>& group) = nullptr;

  // From rotated q and k, out and lse: writes dq, dk, dv, rotated back.
  void (*backward)(const AttentionGroup<T>& group, const AttentionGradients<T>& gradients) = nullptr;
};

ORTHANT_KERNELS(AttentionKernels<float>);
ORTHANT_KERNELS(AttentionKernels<double>);

}  // namespace orthant::nn::kernels
