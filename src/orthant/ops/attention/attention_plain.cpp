// Attention's heads by ATen's formulas: for devices, and as the kernels' oracle. Scores and probabilities are float32
// for narrower dtypes; products run in qkv's dtype.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/attention_blocks.h"

namespace orthant::nn {
namespace {

// x [rows, sequence, heads or kv_heads * head_size] as a view [rows, kv_heads, heads of each, sequence, head_size].
at::Tensor by_head(const at::Tensor& x, const AttentionOptions& options) {
  return x.unflatten(2, {options.kv_heads, x.size(2) / options.kv_heads / options.head_size, options.head_size})
      .permute({0, 2, 3, 1, 4});
}

// Views of qkv or of its gradient, [rows, kv_heads, heads / kv_heads, sequence, head_size]; k and v have 1 in the third
// dim.
struct HeadViews {
  at::Tensor q, k, v;

  HeadViews(at::Tensor queries, at::Tensor keys, at::Tensor values)
      : q(std::move(queries)), k(std::move(keys)), v(std::move(values)) {}

  // Of one block.
  HeadViews(const HeadsMatrices& matrices, const HeadsBlock& block, const AttentionOptions& options) {
    const auto part = [&](const at::Tensor& matrix, std::int64_t first, std::int64_t count) {
      return by_head(matrix.narrow(0, first, count).unsqueeze(0), options);
    };
    q = part(matrices.q, block.query, block.queries);
    k = part(matrices.k, block.key, block.keys);
    v = part(matrices.v, block.key, block.keys);
  }

  HeadViews(const at::Tensor& qkv, const AttentionOptions& options) {
    const std::int64_t width = options.heads * options.head_size, kv_width = options.kv_heads * options.head_size;
    q = by_head(qkv.narrow(2, 0, width), options);
    k = by_head(qkv.narrow(2, width, kv_width), options);
    v = by_head(qkv.narrow(2, width + kv_width, kv_width), options);
  }
};

// Scaled scores with -infinity where a query may not look: [rows, kv_heads, group, queries, keys]. Query i has position
// i + shift where key j has position j; `key_mask` [rows, keys] may be undefined.
at::Tensor masked_scores(const HeadViews& heads, const AttentionOptions& options, std::int64_t shift,
                         const at::Tensor& key_mask) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  const double scale = 1 / std::sqrt(static_cast<double>(options.head_size));
  // Products of float16 would overflow before they are scaled.
  const bool first = heads.q.scalar_type() == at::kHalf;
  const at::Tensor q = first ? heads.q * scale : heads.q;
  at::Tensor scores = at::matmul(q, heads.k.transpose(-1, -2)).to(kernels::compute_dtype(q));
  if (!first) scores.mul_(scale);
  if (options.causal) {
    const auto flags = at::TensorOptions().dtype(at::kBool).device(scores.device());
    const at::Tensor ones = at::ones(scores.sizes().slice(3), flags);
    scores.masked_fill_(ones.triu(shift + 1), kMinusInfinity);
    if (options.window > 0) scores.masked_fill_(ones.tril(shift - options.window), kMinusInfinity);
  }
  if (const at::Tensor& starts = options.document_starts; starts.defined()) {
    scores.masked_fill_(starts.unsqueeze(2).ne(starts.unsqueeze(1)).unsqueeze(1).unsqueeze(1), kMinusInfinity);
  }
  if (key_mask.defined()) {
    const at::Tensor hidden = key_mask.logical_not();
    scores.masked_fill_(hidden.view({hidden.size(0), 1, 1, 1, hidden.size(1)}), kMinusInfinity);
  }
  return scores;
}

// Dropout factors shaped like the scores of rows from `first_row` on, whose first query and key have these positions.
at::Tensor factors_like(const at::Tensor& scores, const HeadsSetup& setup, std::int64_t first_row,
                        std::int64_t query_position, std::int64_t key_position) {
  const std::int64_t heads = setup.options.heads, queries = scores.size(-2);
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    DropoutGrid grid = setup.dropout;
    grid.first_row = (grid.first_row + static_cast<std::uint64_t>(first_row + row)) % kMaxRows * kMaxHeads +
                     static_cast<std::uint64_t>(setup.options.first_head);
    grid.positions = static_cast<std::uint64_t>(queries);
    grid.first_position = static_cast<std::uint64_t>(query_position);
    grid.first_channel = static_cast<std::uint64_t>(key_position);
    rows.push_back(plain_dropout_factors(grid, heads * queries, scores.size(-1), scores.options()));
  }
  return at::stack(rows).view(scores.sizes());
}

at::Tensor lse_view(const at::Tensor& lse, const AttentionOptions& options) {
  return lse.unflatten(1, {options.kv_heads, options.heads / options.kv_heads}).unsqueeze(-1);
}

// out and lse [..., 1] of one call from its masked scores, which it overwrites; `factors` may be undefined.
std::pair<at::Tensor, at::Tensor> attend(at::Tensor scores, const at::Tensor& v, const at::Tensor& factors) {
  at::Tensor lse = at::logsumexp(scores, {-1}, true);
  // A query that sees nothing.
  at::Tensor probabilities = scores.sub_(lse.masked_fill(lse.isneginf(), 0)).exp_();
  if (factors.defined()) probabilities.mul_(factors);
  return {at::matmul(probabilities.to(v.scalar_type()), v), lse};
}

// Gradients of one call from its masked scores, which it overwrites; those of k and v are sums over a group's queries.
HeadViews differentiate(at::Tensor scores, const HeadViews& heads, const at::Tensor& lse, const at::Tensor& delta,
                        const at::Tensor& d_heads, const at::Tensor& factors) {
  const at::ScalarType dtype = heads.q.scalar_type();
  const double scale = 1 / std::sqrt(static_cast<double>(heads.q.size(-1)));
  const at::Tensor p = scores.sub_(lse).exp_();
  at::Tensor d_p = at::matmul(d_heads, heads.v.transpose(-1, -2)).to(scores.scalar_type());
  at::Tensor dropped = p;
  if (factors.defined()) {
    d_p.mul_(factors);
    dropped = p * factors;
  }
  const at::Tensor d_scores = d_p.sub_(delta).mul_(p).mul_(scale).to(dtype);
  return {at::matmul(d_scores, heads.k), at::matmul(d_scores.transpose(-1, -2), heads.q).sum(2, true),
          at::matmul(dropped.to(dtype).transpose(-1, -2), d_heads).sum(2, true)};
}

struct BlockScores {
  HeadViews heads;
  at::Tensor scores, factors;

  BlockScores(const HeadsMatrices& matrices, const HeadsBlock& block, const HeadsSetup& setup)
      : heads(matrices, block, setup.options) {
    at::Tensor mask = setup.options.key_mask;
    if (mask.defined()) mask = mask.narrow(0, block.row, 1).narrow(1, block.key_position, block.keys);
    scores = masked_scores(heads, setup.options, block.query_position - block.key_position, mask);
    if (setup.drops) factors = factors_like(scores, setup, block.row, block.query_position, block.key_position);
  }
};

// Of lse or delta, [heads, query tokens], as [1, kv_heads, group, queries, 1].
at::Tensor statistic_of(const at::Tensor& statistic, const HeadsBlock& block, const AttentionOptions& options) {
  return lse_view(statistic.narrow(1, block.query, block.queries).unsqueeze(0), options);
}

}  // namespace

HeadsOutput plain_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup) {
  const AttentionOptions& options = setup.options;
  const HeadViews heads(qkv, options);
  at::Tensor scores = masked_scores(heads, options, 0, options.key_mask);
  const at::Tensor factors = setup.drops ? factors_like(scores, setup, 0, 0, 0) : at::Tensor();
  const auto [attended, lse] = attend(scores, heads.v, factors);
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), options.heads * options.head_size}, qkv.options());
  by_head(out, options).copy_(attended);
  return {out, lse.masked_fill(lse.isneginf(), 0).view({qkv.size(0), options.heads, qkv.size(1)})};
}

at::Tensor plain_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                const HeadsSetup& setup) {
  const AttentionOptions& options = setup.options;
  const at::ScalarType wide = kernels::compute_dtype(qkv);
  const HeadViews heads(qkv, options);
  const at::Tensor d_heads = by_head(d_out, options);
  at::Tensor scores = masked_scores(heads, options, 0, options.key_mask);
  const at::Tensor factors = setup.drops ? factors_like(scores, setup, 0, 0, 0) : at::Tensor();
  const at::Tensor delta = (d_heads.to(wide) * by_head(output.out, options).to(wide)).sum(-1, true);
  const HeadViews here = differentiate(scores, heads, lse_view(output.lse, options), delta, d_heads, factors);
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  const HeadViews gradients(d_qkv, options);
  gradients.q.copy_(here.q);
  gradients.k.copy_(here.k);
  gradients.v.copy_(here.v);
  AttentionOptions back = options;
  if (back.rotary.sin.defined()) back.rotary.sin = back.rotary.sin.neg();
  rotate_heads(d_qkv, back);
  return d_qkv;
}

void plain_blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                          const HeadsSums& sums) {
  for (const HeadsBlock& block : blocks) {
    BlockScores here(heads, block, setup);
    const auto [attended, block_lse] = attend(here.scores, here.heads.v, here.factors);
    at::Tensor lse = statistic_of(sums.lse, block, setup.options);
    at::Tensor out = by_head(sums.out.narrow(0, block.query, block.queries).unsqueeze(0), setup.options);
    const at::Tensor joined = at::logaddexp(lse, block_lse);
    const at::Tensor safe = joined.masked_fill(joined.isneginf(), 0);
    out.mul_((lse - safe).exp_()).add_(attended.to(out.scalar_type()) * (block_lse - safe).exp_());
    lse.copy_(joined);
  }
}

void plain_blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                           const AttendedQueries& queries, const HeadsMatrices& gradients) {
  for (const HeadsBlock& block : blocks) {
    BlockScores here(heads, block, setup);
    const at::Tensor lse = statistic_of(queries.lse, block, setup.options);
    const at::Tensor d_heads = by_head(queries.d_out.narrow(0, block.query, block.queries).unsqueeze(0), setup.options);
    const HeadViews gradient = differentiate(here.scores, here.heads, lse.masked_fill(lse.isneginf(), 0),
                                             statistic_of(queries.delta, block, setup.options),
                                             d_heads.to(here.heads.q.scalar_type()), here.factors);
    const HeadViews sum(gradients, block, setup.options);
    sum.q.add_(gradient.q);
    sum.k.add_(gradient.k);
    sum.v.add_(gradient.v);
  }
}

}  // namespace orthant::nn
