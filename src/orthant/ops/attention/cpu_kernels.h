// Attention of the heads of one row that share a key/value head: softmax(q k^T * scale) v and its gradients, blocked
// for the caches, on heads as they lie side by side in matrices of tokens. Keys that a causal mask or padding hides
// cost nothing. Note [Attention blocks] in cpu_kernels.inc says how. See Note [Kernels] in isa.h.
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

// A group: `heads` query heads and the key/value head they share, some queries and some keys of one row. Query i has
// position i + shift where key j has position j. Rows of q lie q_stride apart, those of k and v kv_stride, those of out
// out_stride; head h of q and of out begins h * head_size further, and h * lse_stride further in lse.
template <class T>
struct AttentionGroup {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t shift = 0;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  bool causal = false;
  std::int64_t window = 0;  // of a causal one: a query sees keys after its position - window; 0: all before it
  T scale = 1;
  const bool* key_mask = nullptr;  // [keys], true = attend; nullptr: all
  const T* cos = nullptr;          // [queries or keys, head_size / 2]; nullptr: no rotation
  const T* sin = nullptr;
  AttentionDropout<T> dropout = {};

  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
  T* out = nullptr;
  std::int64_t out_stride = 0;
  T* lse = nullptr;
  std::int64_t lse_stride = 0;
  // Results join what their memory holds: out and lse (-infinity: no key yet) as one softmax over all keys so far,
  // gradients by addition. Otherwise they overwrite it.
  bool joins = false;
  T* scratch = nullptr;  // scratch_elements() of them, 64-byte aligned: ops/attention_workspace.h
};

// Rows of d_out lie as those of out; rows of dq, dk and dv have their own strides. `delta` lies as lse: d_out . out of
// each query; nullptr: computed from out.
template <class T>
struct AttentionGradients {
  const T* d_out = nullptr;
  const T* delta = nullptr;
  T* dq = nullptr;
  T* dk = nullptr;
  T* dv = nullptr;
  std::int64_t q_stride = 0;
  std::int64_t kv_stride = 0;
};

template <class T>
struct AttentionKernels {
  std::int64_t (*scratch_elements)(std::int64_t queries, std::int64_t keys, std::int64_t head_size) = nullptr;

  // Rotates q and k in place when there is a table, then gives out and lse: the logarithm of the sum of exponentials.
  // A query that sees no key leaves both as they were where the group joins; otherwise both are 0.
  void (*forward)(const AttentionGroup<T>& group) = nullptr;

  // From rotated q and k, out and lse (0 or -infinity for a query that sees no key): gives dq, dk, dv, rotated back.
  void (*backward)(const AttentionGroup<T>& group, const AttentionGradients<T>& gradients) = nullptr;
};

ORTHANT_KERNELS(AttentionKernels<float>);
ORTHANT_KERNELS(AttentionKernels<double>);

}  // namespace orthant::nn::kernels
