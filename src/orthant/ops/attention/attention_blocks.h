// Attention over blocks: queries of some tokens against keys of some tokens. A whole row is one block; a rank that has
// part of a row's tokens computes some blocks of it, and packed documents are a block each. Causality, windows, dropout
// and masks of keys go by positions, so that blocks give the parts of what one call over the row gives. Rotation is the
// caller's. Fused kernels on the CPU, ATen's formulas elsewhere. Local.
#pragma once

#include <vector>

#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {

struct HeadsBlock {
  std::int64_t row;                           // of the microbatch: for dropout and the mask of keys
  std::int64_t query, queries;                // rows of the matrices that q and out are
  std::int64_t key, keys;                     // rows of the matrices that k and v are
  std::int64_t query_position, key_position;  // of the first ones, in the row
};

// Pairs of a query and a key that causality and the window leave; 0: the block costs nothing.
std::int64_t seen_pairs(const HeadsBlock& block, const AttentionOptions& options);

// Matrices of tokens, or gradients of them; each has stride 1 along its channels and may be columns of a wider matrix.
struct HeadsMatrices {
  at::Tensor q;  // [query tokens, heads * head_size]
  at::Tensor k;  // [key tokens, kv_heads * head_size]
  at::Tensor v;
};

// Views of a joined projection [tokens, (heads + 2 kv_heads) * head_size].
HeadsMatrices split_heads(const at::Tensor& qkv, const AttentionOptions& options);

// The softmax of the keys seen so far.
struct HeadsSums {
  at::Tensor out;  // [query tokens, heads * head_size]; 0 for a query that saw no key
  at::Tensor lse;  // [heads, query tokens]: log of the sum of exp(scores); -infinity for a query that saw no key
};

// Of no key yet; float64 for float64 queries, otherwise float32.
HeadsSums empty_sums(const at::Tensor& q, const AttentionOptions& options);

// For rows of `sequence` positions in all, of which blocks have parts; without rotation. Checks shapes: InternalError.
HeadsSetup blocks_setup(std::int64_t rows, std::int64_t sequence, const AttentionOptions& options, const Pass& pass);

// Joins the blocks to the sums, in order. Ranges of queries of two blocks are equal or apart, and so are ranges of
// keys; rows share no tokens. Returns how many blocks were computed: those with seen_pairs(). InternalError for blocks
// beyond their matrices.
std::int64_t blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                            const HeadsSums& sums);

// What came of queries over all blocks of theirs, and the gradient of it.
struct AttendedQueries {
  at::Tensor out;    // [query tokens, heads * head_size]; undefined: only the libraries of a CUDA device read it
  at::Tensor lse;    // [heads, query tokens]
  at::Tensor delta;  // blocks_delta() of out
  at::Tensor d_out;  // as out
};

// d_out . out of every query and head, [heads, query tokens] like lse; out is [query tokens, heads * head_size].
at::Tensor blocks_delta(const at::Tensor& out, const at::Tensor& d_out, std::int64_t heads);

// Adds to the gradients what the blocks give. Gradients have the dtype of lse. Returns how many blocks were computed.
std::int64_t blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                             const AttendedQueries& queries, const HeadsMatrices& gradients);

// The same by ATen's formulas.
void plain_blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                          const HeadsSums& sums);
void plain_blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                           const AttendedQueries& queries, const HeadsMatrices& gradients);

namespace device {

// By cuDNN, FlashAttention 2 and attention.cu, with the same results; returns the blocks that they do not serve, which
// are left as they are.
bool serves_blocks(const HeadsMatrices& heads, const HeadsSetup& setup);
std::vector<HeadsBlock> kernel_blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                              const HeadsSetup& setup, const HeadsSums& sums);
std::vector<HeadsBlock> kernel_blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                               const HeadsSetup& setup, const AttendedQueries& queries,
                                               const HeadsMatrices& gradients);

// Joins to the sums, from row `query` on, what one block gave its queries: out [heads, queries, head_size] by its
// strides, in bfloat16 or float16, and lse [heads, queries].
void join_block(const HeadsSums& sums, std::int64_t query, const at::Tensor& out, const at::Tensor& lse);

// Adds x [heads, tokens, head_size] by its strides, in bfloat16 or float16, to sums [tokens, heads * head_size].
void add_block(const at::Tensor& sums, const at::Tensor& x);

// Calls of attention.cu: queries and keys of one joined projection [rows, tokens, channels], whose first ones are at
// these places.
struct BlockPlace {
  std::int64_t query = 0, key = 0;
};
HeadsOutput kernel_block_forward(const at::Tensor& qkv, const HeadsSetup& setup, const BlockPlace& place);
// From lse over all keys of the queries, and delta: float32 [rows, heads, tokens].
at::Tensor kernel_block_backward(const at::Tensor& qkv, const at::Tensor& lse, const at::Tensor& delta,
                                 const at::Tensor& d_out, const HeadsSetup& setup, const BlockPlace& place);

}  // namespace device

}  // namespace orthant::nn
