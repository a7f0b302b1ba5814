// What the ways of context attention share: blocks between the tokens of two ranks. Internal to this layer.
#pragma once

#include <vector>

#include "orthant/ops/attention/context_attention.h"

namespace orthant::nn {

inline KeyRule key_rule(const AttentionOptions& options) {
  return {options.causal, options.window};
}

// Pieces of some positions of every row, one after the other in a matrix of tokens.
class RowPieces {
 public:
  // Those of `own` that `taken` says.
  RowPieces(const OwnPositions& own, std::array<bool, 2> taken);
  explicit RowPieces(const OwnPositions& own) : RowPieces(own, {true, true}) {}

  std::int64_t size() const { return size_; }  // positions of a row
  const std::vector<Range>& pieces() const { return pieces_; }

 private:
  std::vector<Range> pieces_;
  std::int64_t size_ = 0;
};

// Who sees whom: by positions, and within documents where rows are packed.
class Sight {
 public:
  Sight(const AttentionOptions& options, const Pass& pass);

  // All queries against all keys, of every row, but for what is hidden.
  std::vector<HeadsBlock> blocks(const RowPieces& queries, const RowPieces& keys) const;

 private:
  KeyRule rule_;
  std::vector<std::vector<Range>> documents_;  // of each row
};

// The keys and values of a joined projection, side by side: [tokens, 2 kv_heads * head_size].
at::Tensor keys_and_values(const at::Tensor& qkv, const AttentionOptions& options);
// As the matrices of blocks.
HeadsMatrices with_keys(const at::Tensor& q, const at::Tensor& keys_values);

// Queries of this rank, and what its blocks add up to in backward.
struct OwnGradients {
  at::Tensor q;            // [own tokens, heads * head_size], as the sums
  at::Tensor keys_values;  // [own tokens, 2 kv_heads * head_size]

  OwnGradients(const at::Tensor& qkv, const AttentionOptions& options, at::ScalarType dtype);
  at::Tensor joined(at::ScalarType dtype) const;
};

// The ways.
ContextOutput ring_forward(const at::Tensor& qkv, const HeadsSetup& setup, const Sight& sight, const Pass& pass);
at::Tensor ring_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                         const HeadsSetup& setup, const Sight& sight, const Pass& pass);
ContextOutput gather_forward(const at::Tensor& qkv, const HeadsSetup& setup, const Sight& sight, const Pass& pass);
at::Tensor gather_backward(const at::Tensor& qkv, const ContextOutput& output, const at::Tensor& d_out,
                           const HeadsSetup& setup, const Sight& sight, const Pass& pass);
ContextOutput all_to_all_forward(const at::Tensor& qkv, const AttentionOptions& options, const Sight& sight,
                                 const Pass& pass);
at::Tensor all_to_all_backward(const ContextOutput& output, const at::Tensor& d_out, const AttentionOptions& options,
                               const Sight& sight, const Pass& pass);

}  // namespace orthant::nn
