// Attention from the joined projection's output to the layer's output: rotary, scores, softmax, dropout, weighted sum,
// output projection. Local, but where that is cut by rows: then qkv has this rank's heads, and the output is summed
// over tp. See Note [Cut products] in projection.h.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// cos and sin of the rotary angles, [sequence, head_size / 2] each, half-split convention: (x1, x2) = halves of a head,
// (x1 cos - x2 sin, x2 cos + x1 sin). Built once per rank and shape; belongs to no unit.
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;
};

// Angle of position p and channel pair i: p * inverse[i]. Both tables are multiplied by `magnitude`.
RotaryTable rotary_table(std::int64_t sequence, const std::vector<double>& inverse, double magnitude,
                         const at::TensorOptions& options);
// The same from frequencies [head_size / 2] of any dtype: angles are computed in it.
RotaryTable rotary_table(std::int64_t sequence, const at::Tensor& inverse, double magnitude,
                         const at::TensorOptions& options);

struct AttentionOptions {
  std::int64_t heads = 1;     // in qkv
  std::int64_t kv_heads = 1;  // divides heads
  std::int64_t head_size = 1;
  bool causal = false;
  RotaryTable rotary = {};   // undefined tensors: none
  at::Tensor key_mask = {};  // [rows, sequence] bool, true = attend; undefined: all. A query that sees nothing gets 0
  double dropout = 0;        // of the probabilities
  std::string site;          // of that dropout
  std::int64_t first_head = 0;  // of qkv, counted in the whole layer; set by attention()
};

// qkv [rows, sequence, (heads + 2 kv_heads) * head_size]: queries, keys, values as the joined projection wrote them.
// May be overwritten (the rotation is in place): nobody else reads it. weight [out, heads * head_size], bias or
// nullptr, residual shaped as the output ([rows, sequence, out], or own tokens) or undefined (added to the output).
// Keeps qkv, the heads' output and one number per row and head, and a bit per probability where a card drops some; with
// Recompute::selective qkv alone, and backward computes the rest again, with equal bits.
at::Tensor attention(const at::Tensor& qkv, Parameter& weight, Parameter* bias, const AttentionOptions& options,
                     Pass& pass, const at::Tensor& residual = {});

}  // namespace orthant::nn
