// The heads' part of attention, between the joined projection and the output projection: rotation,
// scores, softmax, dropout, weighted sums. Fused kernels on the CPU; on a CUDA device cuDNN or attention.cu; ATen's
// formulas elsewhere and as the kernels' oracle. All tensors of qkv's kind are [rows, sequence, (heads + 2 kv_heads) *
// head_size] and contiguous. Local.
#pragma once

#include "orthant/ops/dropout/dropout.h"

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

// Unpadded rows as kernels of a device take them.
struct UnpaddedRows {
  at::Tensor firsts;         // TokenRows::firsts
  std::int64_t longest = 0;  // row, at most

  bool defined() const { return firsts.defined(); }
};

struct AttentionOptions {
  std::int64_t heads = 1;     // in qkv
  std::int64_t kv_heads = 1;  // divides heads
  std::int64_t head_size = 1;
  bool causal = false;
  std::int64_t window = 0;   // of a causal one: query i sees keys after i - window; 0: all before it
  RotaryTable rotary = {};   // undefined tensors: none
  at::Tensor key_mask = {};  // [rows, sequence] bool, true = attend; undefined: all. A query that sees nothing gets 0
  // Packed documents: int64 [rows, sequence], for each token the position in its row where its document begins. Tokens
  // see their own document, and rotation counts positions from its beginning. Undefined: a row is one document.
  at::Tensor document_starts = {};
  at::Tensor positions =
      {};  // by which tokens of packed documents are turned, [rows, tokens]; undefined: by the starts
  // Of unpadded rows, which are documents of one row: int64 [1, tokens], the row of each token, for dropout, which then
  // counts positions from the row's beginning. On the CPU. Undefined: by rows and positions of qkv.
  at::Tensor document_rows = {};
  UnpaddedRows unpadded = {};   // of them, for a device
  double dropout = 0;           // of the probabilities
  std::string site;             // of that dropout
  std::int64_t first_head = 0;  // of qkv, counted in the whole layer
};

// AttentionOptions of one call with its dropout: what backward needs besides tensors.
struct HeadsSetup {
  AttentionOptions options;
  bool drops = false;
  DropoutGrid dropout = {};
  bool repeatable = true;  // backward adds in one order: equal bits in every run

  // Index in the dropout's stream of head `head`, query 0, key 0 of a row of the microbatch. Queries are kMaxChannels
  // apart, keys 1.
  std::uint64_t element(std::int64_t row, std::int64_t head) const;
};

inline constexpr std::int64_t kMaxHeads = 4096;  // stride of rows in the dropout's index, counted in heads
inline constexpr std::int64_t kMaxRows = 4096;   // a stream ends there: further rows have the masks of the first ones

// Checks shapes: InternalError with what does not fit.
HeadsSetup heads_setup(const at::Tensor& qkv, const AttentionOptions& options, const Pass& pass);

struct HeadsOutput {
  at::Tensor out;  // [rows, sequence, heads * head_size], qkv's dtype
  at::Tensor lse;  // [rows, heads, sequence]: log of the sum of exp(scores); float32 for narrower dtypes
  // int32 [rows, heads, queries, keys / 32 rounded up]: bits of the probabilities that stay, where
  // kernel_heads_forward() drew them; of unpadded rows as many keys as the longest row has.
  at::Tensor kept = {};
};

// The documents of each row, from a contiguous tensor on the host. InternalError for a token whose document begins
// neither at it nor where that of the token before it does.
std::vector<std::vector<Range>> document_ranges(const at::Tensor& document_starts);

// Positions within documents: int64 [rows, sequence].
at::Tensor document_positions(const at::Tensor& document_starts);

// Rotates queries and keys of qkv in place, half-split; nothing without a table.
void rotate_heads(const at::Tensor& qkv, const AttentionOptions& options);

// From a qkv that is rotated already, unless `rotate`: then it is rotated in place.
HeadsOutput heads_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool rotate);

// The gradient of qkv before rotation, from the rotated one.
at::Tensor heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup);

// The same by ATen's formulas.
HeadsOutput plain_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup);
at::Tensor plain_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                const HeadsSetup& setup);

// On a CUDA device, where serves_heads(); qkv is rotated already. The rotation alone where serves_rotation().
namespace device {
bool serves_heads(const at::Tensor& qkv, const HeadsSetup& setup);
// By attention.cu alone, which has dropout and masks of keys, and whose backward adds in one order. `warps_alone`: by
// products that every card from sm_80 on has, also where this one has wider ones.
bool serves_kernel_heads(const at::Tensor& qkv, const HeadsSetup& setup);
// For some tensor of bfloat16 or float16 with heads of that size. Unpadded rows need it.
bool serves_kernel_heads(std::int64_t head_size);
HeadsOutput kernel_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup, bool warps_alone = false);
at::Tensor kernel_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                 const HeadsSetup& setup, bool warps_alone = false);
HeadsOutput heads_forward(const at::Tensor& qkv, const HeadsSetup& setup);
at::Tensor heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                          const HeadsSetup& setup);
// d_qkv from the gradients of q, k and v, each [rows, heads, sequence, head_size]: turned back where there are tables.
at::Tensor join_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options);
bool serves_rotation(const at::Tensor& qkv, const AttentionOptions& options);
void rotate_heads(const at::Tensor& qkv, const AttentionOptions& options);
}  // namespace device

}  // namespace orthant::nn
