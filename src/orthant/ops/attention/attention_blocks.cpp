#include "orthant/ops/attention/attention_blocks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/ops/attention/fused_blocks.h"

namespace orthant::nn {
namespace {

void check_blocks(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks) {
  for (const HeadsBlock& block : blocks) {
    if (block.query + block.queries > heads.q.size(0) || block.key + block.keys > heads.k.size(0)) {
      throw InternalError(fmt::format("an attention block of queries [{}, {}) and keys [{}, {}) of {} and {} tokens",
                                      block.query, block.query + block.queries, block.key, block.key + block.keys,
                                      heads.q.size(0), heads.k.size(0)));
    }
  }
}

// Those with work, rows side by side.
std::vector<HeadsBlock> computed_blocks(const std::vector<HeadsBlock>& blocks, const AttentionOptions& options) {
  std::vector<HeadsBlock> computed;
  std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(computed),
               [&](const HeadsBlock& block) { return seen_pairs(block, options) > 0; });
  std::stable_sort(computed.begin(), computed.end(),
                   [](const HeadsBlock& left, const HeadsBlock& right) { return left.row < right.row; });
  return computed;
}

HeadsMatrices widened(const HeadsMatrices& heads) {
  const at::ScalarType dtype = kernels::compute_dtype(heads.q);
  return {heads.q.to(dtype), heads.k.to(dtype), heads.v.to(dtype)};
}

// Keys at or before positions [0, end) of queries, counted in keys [0, keys): sum over p < end of min(p + 1, keys).
std::int64_t causal_pairs(std::int64_t end, std::int64_t keys) {
  const std::int64_t rising = std::clamp<std::int64_t>(end, 0, keys);
  return rising * (rising + 1) / 2 + std::max<std::int64_t>(end - keys, 0) * keys;
}

}  // namespace

std::int64_t seen_pairs(const HeadsBlock& block, const AttentionOptions& options) {
  if (!options.causal) return block.queries * block.keys;
  const std::int64_t shift = block.query_position - block.key_position, end = shift + block.queries;
  const auto before = [&](std::int64_t moved) {
    return causal_pairs(end - moved, block.keys) - causal_pairs(shift - moved, block.keys);
  };
  return before(0) - (options.window > 0 ? before(options.window) : 0);
}

HeadsMatrices split_heads(const at::Tensor& qkv, const AttentionOptions& options) {
  const std::int64_t q = options.heads * options.head_size, kv = options.kv_heads * options.head_size;
  return {qkv.narrow(1, 0, q), qkv.narrow(1, q, kv), qkv.narrow(1, q + kv, kv)};
}

HeadsSums empty_sums(const at::Tensor& q, const AttentionOptions& options) {
  const at::TensorOptions wide = q.options().dtype(kernels::compute_dtype(q));
  return {at::zeros({q.size(0), options.heads * options.head_size}, wide),
          at::full({options.heads, q.size(0)}, -std::numeric_limits<double>::infinity(), wide)};
}

std::int64_t blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                            const HeadsSums& sums) {
  check_blocks(heads, blocks);
  const std::vector<HeadsBlock> computed = computed_blocks(blocks, setup.options);
  const auto count = static_cast<std::int64_t>(computed.size());
  if (count == 0) return 0;
  if (!heads.q.is_cpu()) {
    const bool kernels = device::serves_blocks(heads, setup);
    plain_blocks_forward(heads, kernels ? device::kernel_blocks_forward(heads, computed, setup, sums) : computed, setup,
                         sums);
    return count;
  }
  const HeadsMatrices wide = widened(heads);
  kernels::with_element(wide.q, [&](auto element) {
    FusedBlocks<decltype(element)> fused(wide, computed, setup);
    fused.give(sums.out, sums.lse);
    fused.forward();
  });
  return count;
}

at::Tensor blocks_delta(const at::Tensor& out, const at::Tensor& d_out, std::int64_t heads) {
  const at::ScalarType wide = out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor products = d_out.to(wide) * out.to(wide);
  return products.view({products.size(0), heads, -1}).sum(-1).t().contiguous();
}

std::int64_t blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks, const HeadsSetup& setup,
                             const AttendedQueries& queries, const HeadsMatrices& gradients) {
  check_blocks(heads, blocks);
  const std::vector<HeadsBlock> computed = computed_blocks(blocks, setup.options);
  const auto count = static_cast<std::int64_t>(computed.size());
  if (count == 0) return 0;
  if (!heads.q.is_cpu()) {
    const bool kernels = device::serves_blocks(heads, setup);
    const auto left = kernels ? device::kernel_blocks_backward(heads, computed, setup, queries, gradients) : computed;
    plain_blocks_backward(heads, left, setup, queries, gradients);
    return count;
  }
  const HeadsMatrices wide = widened(heads);
  const at::Tensor wide_d_out = queries.d_out.to(wide.q.scalar_type()).contiguous();
  kernels::with_element(wide.q, [&](auto element) {
    FusedBlocks<decltype(element)> fused(wide, computed, setup);
    fused.give(wide_d_out, queries.lse);
    fused.backward(wide_d_out, queries.delta, gradients);
  });
  return count;
}

}  // namespace orthant::nn
