#include "orthant/ops/head_norm/head_norm.h"

#include <ATen/ATen.h>

#include <array>

#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/linear/columns.h"

namespace orthant::nn {
namespace {

// Queries or keys among the heads.
struct HeadPart {
  std::int64_t first;
  std::int64_t count;
  Parameter* weight;
};

std::array<HeadPart, 2> normed_parts(const HeadNorms& norms) {
  return {{{0, norms.heads, norms.query}, {norms.heads, norms.kv_heads, norms.key}}};
}

at::Tensor channels_of(const at::Tensor& qkv, const HeadPart& part, std::int64_t size) {
  return qkv.narrow(1, part.first * size, part.count * size);
}

// The part's heads as rows: [tokens * count, size], a copy.
at::Tensor rows_of(const at::Tensor& qkv, const HeadPart& part, std::int64_t size) {
  return channels_of(qkv, part, size).contiguous().view({qkv.size(0) * part.count, size});
}

void copy_values(const at::Tensor& to, const at::Tensor& from, const HeadNorms& norms) {
  const HeadPart values = {norms.heads + norms.kv_heads, norms.kv_heads, nullptr};
  channels_of(to, values, norms.head_size).copy_(channels_of(from, values, norms.head_size));
}

}  // namespace

Normalized head_norm_forward(const at::Tensor& qkv, const HeadNorms& norms) {
  const std::int64_t size = norms.head_size;
  Normalized out = {at::empty(qkv.sizes(), qkv.options()), at::empty({qkv.size(0), norms.heads + norms.kv_heads},
                                                                     qkv.options().dtype(kernels::compute_dtype(qkv)))};
  for (const HeadPart& part : normed_parts(norms)) {
    const Normalized made = norm_forward(rows_of(qkv, part, size), {Norm::rms, norms.eps, part.weight});
    channels_of(out.y, part, size).copy_(made.y.view({qkv.size(0), part.count * size}));
    out.statistics.narrow(1, part.first, part.count).copy_(made.statistics.view({qkv.size(0), part.count}));
  }
  copy_values(out.y, qkv, norms);
  return out;
}

at::Tensor head_norm_backward(const at::Tensor& gy, const at::Tensor& qkv, const at::Tensor& statistics,
                              const HeadNorms& norms, NormParts parts) {
  const std::int64_t size = norms.head_size;
  at::Tensor gx = parts.input ? at::empty(qkv.sizes(), qkv.options()) : at::Tensor();
  for (const HeadPart& part : normed_parts(norms)) {
    const at::Tensor weight = parts.input ? part.weight->value : at::Tensor();  // not gathered where nobody reads it
    const NormInput input = {rows_of(qkv, part, size), rows_of(statistics, part, 1), weight};
    const NormGradients made = norm_backward(Norm::rms, rows_of(gy, part, size), input, parts, nullptr);
    if (parts.weights) add_column_sums(*part.weight, made.weight);
    if (parts.input) channels_of(gx, part, size).copy_(made.x.view({qkv.size(0), part.count * size}));
  }
  if (parts.input) copy_values(gx, gy, norms);
  return gx;
}

}  // namespace orthant::nn
