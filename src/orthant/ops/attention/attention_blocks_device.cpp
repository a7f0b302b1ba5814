// Attention blocks by the kernels of attention.cu, which take as many queries as keys of one matrix: the queries, keys
// and values of a block are copied side by side, with hidden keys behind where there are fewer of them. Blocks that lie
// alike in several rows are one call.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/attention/attention_blocks.h"

namespace orthant::nn::device {
namespace {

bool lie_alike(const HeadsBlock& a, const HeadsBlock& b) {
  return a.queries == b.queries && a.keys == b.keys && a.query_position == b.query_position &&
         a.key_position == b.key_position;
}

// Blocks of several rows that lie alike, as one call.
class AlikeBlocks {
 public:
  AlikeBlocks(const HeadsMatrices& heads, std::vector<HeadsBlock> blocks, const HeadsSetup& setup)
      : blocks_(std::move(blocks)), first_(blocks_.front()), setup_(setup) {
    const AttentionOptions& options = setup.options;
    rows_ = static_cast<std::int64_t>(blocks_.size());
    size_ = std::max(first_.queries, first_.keys);
    width_ = options.heads * options.head_size;
    kv_width_ = options.kv_heads * options.head_size;
    const auto shape = std::array<std::int64_t, 3>{rows_, size_, width_ + 2 * kv_width_};
    const bool padded = first_.queries != first_.keys;
    qkv_ = padded ? at::zeros(shape, heads.q.options()) : at::empty(shape, heads.q.options());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      queries_of(qkv_[row]).copy_(heads.q.narrow(0, block.query, block.queries));
      keys_of(qkv_[row], 0).copy_(heads.k.narrow(0, block.key, block.keys));
      keys_of(qkv_[row], 1).copy_(heads.v.narrow(0, block.key, block.keys));
    });
    // Keys that all come before all queries are seen without asking.
    setup_.options.causal = options.causal && shift() < first_.keys - 1;
    setup_.options.window = 0;
    setup_.options.rotary = {};
    setup_.options.key_mask = mask(options.key_mask);
  }

  // Whether the kernels compute it, which know neither windows nor, apart from whole rows, what was dropped.
  bool is_served() const {
    const AttentionOptions& options = setup_.options;
    return !setup_.drops && (shift() >= 0 || !options.causal) && serves_kernel_heads(qkv_, setup_);
  }

  void forward(const HeadsSums& sums) const {
    const HeadsOutput output = kernel_block_forward(qkv_, setup_, place());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      at::Tensor block_lse = output.lse[row].narrow(1, 0, block.queries);
      if (setup_.options.key_mask.defined()) block_lse = block_lse.masked_fill(sees_nothing(row), kNothing);
      const at::Tensor lse = sums.lse.narrow(1, block.query, block.queries);
      const at::Tensor joined = at::logaddexp(lse, block_lse);
      const at::Tensor safe = joined.masked_fill(joined.isneginf(), 0);
      const at::Tensor out = by_head(sums.out.narrow(0, block.query, block.queries));
      const at::Tensor attended = by_head(output.out[row].narrow(0, 0, block.queries)).to(out.scalar_type());
      out.mul_((lse - safe).exp_().unsqueeze(-1)).add_(attended * (block_lse - safe).exp_().unsqueeze(-1));
      lse.copy_(joined);
    });
  }

  void backward(const at::Tensor& all_lse, const at::Tensor& all_delta, const at::Tensor& all_d_out,
                const HeadsMatrices& gradients) const {
    const at::Tensor lse = at::zeros({rows_, setup_.options.heads, size_}, all_lse.options());
    const at::Tensor delta = at::zeros_like(lse);
    const at::Tensor d_out = at::zeros({rows_, size_, width_}, qkv_.options());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      const at::Tensor own = all_lse.narrow(1, block.query, block.queries);
      lse[row].narrow(1, 0, block.queries).copy_(own.masked_fill(own.isneginf(), 0));
      delta[row].narrow(1, 0, block.queries).copy_(all_delta.narrow(1, block.query, block.queries));
      d_out[row].narrow(0, 0, block.queries).copy_(all_d_out.narrow(0, block.query, block.queries));
    });
    const at::Tensor d_qkv = kernel_block_backward(qkv_, lse, delta, d_out, setup_, place());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      gradients.q.narrow(0, block.query, block.queries).add_(queries_of(d_qkv[row]));
      gradients.k.narrow(0, block.key, block.keys).add_(keys_of(d_qkv[row], 0));
      gradients.v.narrow(0, block.key, block.keys).add_(keys_of(d_qkv[row], 1));
    });
  }

 private:
  static constexpr double kNothing = -std::numeric_limits<double>::infinity();

  template <class Action>
  void for_rows(const Action& action) const {
    for (std::int64_t row = 0; row < rows_; ++row) action(row, blocks_[static_cast<std::size_t>(row)]);
  }

  std::int64_t shift() const { return first_.query_position - first_.key_position; }
  BlockPlace place() const { return {setup_.options.causal ? shift() : 0, 0}; }
  at::Tensor queries_of(const at::Tensor& row) const { return row.narrow(0, 0, first_.queries).narrow(1, 0, width_); }
  at::Tensor keys_of(const at::Tensor& row, std::int64_t which) const {
    return row.narrow(0, 0, first_.keys).narrow(1, width_ + which * kv_width_, kv_width_);
  }
  // [tokens, channels] as [heads, tokens, head_size].
  at::Tensor by_head(const at::Tensor& x) const {
    return x.unflatten(1, {setup_.options.heads, setup_.options.head_size}).transpose(0, 1);
  }

  at::Tensor mask(const at::Tensor& of_rows) const {
    if (!of_rows.defined() && first_.keys == size_) return {};
    const at::Tensor mask = at::zeros({rows_, size_}, qkv_.options().dtype(at::kBool));
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      const at::Tensor own = mask[row].narrow(0, 0, block.keys);
      if (of_rows.defined()) own.copy_(of_rows[block.row].narrow(0, block.key_position, block.keys));
      if (!of_rows.defined()) own.fill_(true);
    });
    return mask;
  }

  // [queries]: whether all keys that a query might see are hidden.
  at::Tensor sees_nothing(std::int64_t row) const {
    const at::Tensor seen = setup_.options.key_mask[row].narrow(0, 0, first_.keys).cumsum(0);
    const auto counts = at::TensorOptions().dtype(at::kLong).device(qkv_.device());
    const std::int64_t from = setup_.options.causal ? shift() : first_.keys - 1;
    return seen.index_select(0, at::arange(from, from + first_.queries, counts).clamp_max_(first_.keys - 1)).eq(0);
  }

  std::vector<HeadsBlock> blocks_;
  HeadsBlock first_;
  HeadsSetup setup_;
  std::int64_t rows_ = 0, size_ = 0, width_ = 0, kv_width_ = 0;
  at::Tensor qkv_;
};

// action(alike) for blocks that lie alike, in the order of the first of each; rest(block) where kernels serve them not.
template <class Action>
std::vector<HeadsBlock> for_alike(const HeadsMatrices& heads, std::vector<HeadsBlock> blocks, const HeadsSetup& setup,
                                  const Action& action) {
  std::vector<HeadsBlock> left;
  while (!blocks.empty()) {
    const HeadsBlock first = blocks.front();
    const auto others = std::stable_partition(blocks.begin(), blocks.end(),
                                              [&](const HeadsBlock& block) { return lie_alike(block, first); });
    const std::vector<HeadsBlock> alike(blocks.begin(), others);
    blocks.erase(blocks.begin(), others);
    const std::int64_t window = setup.options.window;
    const bool in_window = window == 0 || first.query_position + first.queries - first.key_position <= window;
    const AlikeBlocks call(heads, alike, setup);
    if (in_window && call.is_served()) {
      action(call);
    } else {
      left.insert(left.end(), alike.begin(), alike.end());
    }
  }
  return left;
}

}  // namespace

bool serves_blocks(const HeadsMatrices& heads, const HeadsSetup& setup) {
  const bool narrow = heads.q.scalar_type() == at::kBFloat16 || heads.q.scalar_type() == at::kHalf;
  return narrow && !setup.drops && has_kernels(heads.q.device());
}

std::vector<HeadsBlock> kernel_blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                              const HeadsSetup& setup, const HeadsSums& sums) {
  return for_alike(heads, blocks, setup, [&](const AlikeBlocks& alike) { alike.forward(sums); });
}

std::vector<HeadsBlock> kernel_blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                               const HeadsSetup& setup, const at::Tensor& lse, const at::Tensor& delta,
                                               const at::Tensor& d_out, const HeadsMatrices& gradients) {
  return for_alike(heads, blocks, setup,
                   [&](const AlikeBlocks& alike) { alike.backward(lse, delta, d_out, gradients); });
}

}  // namespace orthant::nn::device
