// Attention's heads by ATen's formulas: for devices, and as the kernels' oracle. Scores and probabilities are float32
// for narrower dtypes; products run in qkv's dtype.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn {
namespace {

// Views of qkv or of its gradient, [rows, kv_heads, heads / kv_heads, sequence, head_size]; k and v have 1 in the third
// dim.
struct HeadViews {
  at::Tensor q, k, v;

  HeadViews(const at::Tensor& qkv, const AttentionOptions& options) {
    const at::Tensor all =
        qkv.view({qkv.size(0), qkv.size(1), options.heads + 2 * options.kv_heads, options.head_size}).transpose(1, 2);
    const auto part = [&](std::int64_t first, std::int64_t count) {
      return all.narrow(1, first, count).unflatten(1, {options.kv_heads, count / options.kv_heads});
    };
    q = part(0, options.heads);
    k = part(options.heads, options.kv_heads);
    v = part(options.heads + options.kv_heads, options.kv_heads);
  }
};

// out [rows, sequence, heads * head_size] as a view like HeadViews::q.
at::Tensor output_view(const at::Tensor& out, const AttentionOptions& options) {
  return out.view({out.size(0), out.size(1), options.kv_heads, options.heads / options.kv_heads, options.head_size})
      .permute({0, 2, 3, 1, 4});
}

// Scaled scores with -infinity where a query may not look: [rows, kv_heads, group, queries, keys].
at::Tensor masked_scores(const HeadViews& heads, const AttentionOptions& options) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  const double scale = 1 / std::sqrt(static_cast<double>(options.head_size));
  // Products of float16 would overflow before they are scaled.
  const bool first = heads.q.scalar_type() == at::kHalf;
  const at::Tensor q = first ? heads.q * scale : heads.q;
  at::Tensor scores = at::matmul(q, heads.k.transpose(-1, -2)).to(kernels::compute_dtype(q));
  if (!first) scores.mul_(scale);
  if (options.causal) {
    const std::int64_t sequence = scores.size(-1);
    const auto flags = at::TensorOptions().dtype(at::kBool).device(scores.device());
    scores.masked_fill_(at::ones({sequence, sequence}, flags).triu_(1), kMinusInfinity);
    if (options.window > 0) {
      scores.masked_fill_(at::ones({sequence, sequence}, flags).tril_(-options.window), kMinusInfinity);
    }
  }
  if (options.key_mask.defined()) {
    const at::Tensor hidden = options.key_mask.logical_not();
    scores.masked_fill_(hidden.view({hidden.size(0), 1, 1, 1, hidden.size(1)}), kMinusInfinity);
  }
  return scores;
}

// Dropout factors shaped like scores.
at::Tensor factors_like(const at::Tensor& scores, const HeadsSetup& setup) {
  const std::int64_t heads = setup.options.heads, sequence = scores.size(-1);
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    DropoutGrid grid = setup.dropout;
    grid.first_row = (grid.first_row + static_cast<std::uint64_t>(row)) % kMaxRows * kMaxHeads +
                     static_cast<std::uint64_t>(setup.options.first_head);
    rows.push_back(plain_dropout_factors(grid, heads * sequence, sequence, scores.options()));
  }
  return at::stack(rows).view(scores.sizes());
}

at::Tensor lse_view(const at::Tensor& lse, const AttentionOptions& options) {
  return lse.unflatten(1, {options.kv_heads, options.heads / options.kv_heads}).unsqueeze(-1);
}

}  // namespace

HeadsOutput plain_heads_forward(const at::Tensor& qkv, const HeadsSetup& setup) {
  const AttentionOptions& options = setup.options;
  const HeadViews heads(qkv, options);
  at::Tensor scores = masked_scores(heads, options);
  at::Tensor lse = at::logsumexp(scores, {-1}, true);
  // A query that sees nothing.
  lse.masked_fill_(lse.isneginf(), 0);
  at::Tensor probabilities = scores.sub_(lse).exp_();
  if (setup.drops) probabilities.mul_(factors_like(probabilities, setup));
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), options.heads * options.head_size}, qkv.options());
  output_view(out, options).copy_(at::matmul(probabilities.to(qkv.scalar_type()), heads.v));
  return {out, lse.view({qkv.size(0), options.heads, qkv.size(1)})};
}

at::Tensor plain_heads_backward(const at::Tensor& qkv, const HeadsOutput& output, const at::Tensor& d_out,
                                const HeadsSetup& setup) {
  const AttentionOptions& options = setup.options;
  const at::ScalarType dtype = qkv.scalar_type(), wide = kernels::compute_dtype(qkv);
  const double scale = 1 / std::sqrt(static_cast<double>(options.head_size));
  const HeadViews heads(qkv, options);
  const at::Tensor d_heads = output_view(d_out, options);
  const at::Tensor p = masked_scores(heads, options).sub_(lse_view(output.lse, options)).exp_();
  at::Tensor d_p = at::matmul(d_heads, heads.v.transpose(-1, -2)).to(wide);
  at::Tensor dropped = p;
  if (setup.drops) {
    const at::Tensor factors = factors_like(p, setup);
    d_p.mul_(factors);
    dropped = p * factors;
  }
  const at::Tensor delta = (d_heads.to(wide) * output_view(output.out, options).to(wide)).sum(-1, true);
  const at::Tensor d_scores = d_p.sub_(delta).mul_(p).mul_(scale).to(dtype);
  at::Tensor d_qkv = at::empty(qkv.sizes(), qkv.options());
  const HeadViews gradients(d_qkv, options);
  gradients.q.copy_(at::matmul(d_scores, heads.k));
  gradients.k.copy_(at::matmul(d_scores.transpose(-1, -2), heads.q).sum(2, true));
  gradients.v.copy_(at::matmul(dropped.to(dtype).transpose(-1, -2), d_heads).sum(2, true));
  AttentionOptions back = options;
  if (back.rotary.sin.defined()) back.rotary.sin = back.rotary.sin.neg();
  rotate_heads(d_qkv, back);
  return d_qkv;
}

}  // namespace orthant::nn
