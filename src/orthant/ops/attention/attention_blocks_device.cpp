// Attention blocks on a CUDA device. Long ones whose keys all see each other's queries, or that a causal mask cuts
// along their diagonal, are computed by cuDNN where they lie. The others take the kernels of attention.cu, which have
// as many queries as keys of one matrix: queries, keys and values of a block are copied side by side, with hidden keys
// behind where there are fewer of them, and blocks that lie alike in several rows are one call.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "orthant/nn/device_kernels.h"
#include "orthant/ops/attention/attention_blocks.h"
#include "orthant/ops/attention/library_heads.h"

namespace orthant::cuda::sources {
extern const std::string_view block_sums;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kBlockSums{"ops/attention/block_sums.cu", cuda::sources::block_sums, {"ELEMENT"}};

// `struct Places` and `struct LsePlaces` of block_sums.cu.
struct Places {
  std::int64_t out_token, token, head;

  // x [heads, tokens, head_size], by its strides.
  Places(const at::Tensor& sums, const at::Tensor& x)
      : out_token(sums.stride(0)), token(x.stride(1)), head(x.stride(0)) {}
};
struct LsePlaces {
  std::int64_t head, block_head;
};
constexpr std::int64_t kLane = 8;  // elements of a vector, in bfloat16 and float16

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
      join_block(sums, block.query, by_head(output.out[row].narrow(0, 0, block.queries)), block_lse);
    });
  }

  void backward(const AttendedQueries& queries, const HeadsMatrices& gradients) const {
    const at::Tensor lse = at::zeros({rows_, setup_.options.heads, size_}, queries.lse.options());
    const at::Tensor delta = at::zeros_like(lse);
    const at::Tensor d_out = at::zeros({rows_, size_, width_}, qkv_.options());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      const at::Tensor own = queries.lse.narrow(1, block.query, block.queries);
      lse[row].narrow(1, 0, block.queries).copy_(own.masked_fill(own.isneginf(), 0));
      delta[row].narrow(1, 0, block.queries).copy_(queries.delta.narrow(1, block.query, block.queries));
      d_out[row].narrow(0, 0, block.queries).copy_(queries.d_out.narrow(0, block.query, block.queries));
    });
    const at::Tensor d_qkv = kernel_block_backward(qkv_, lse, delta, d_out, setup_, place());
    for_rows([&](std::int64_t row, const HeadsBlock& block) {
      add_block(gradients.q.narrow(0, block.query, block.queries), by_head(queries_of(d_qkv[row])));
      add_block(gradients.k.narrow(0, block.key, block.keys), by_head(keys_of(d_qkv[row], 0)));
      add_block(gradients.v.narrow(0, block.key, block.keys), by_head(keys_of(d_qkv[row], 1)));
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
    return x.unflatten(1, {-1, setup_.options.head_size}).transpose(0, 1);
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

// Blocks whose queries see all keys, or a causal one along its diagonal: cuDNN computes them where they lie.
struct LongBlock {
  HeadsBlock place;
  bool causal;
};

bool sees_all(const HeadsBlock& block, const AttentionOptions& options) {
  const std::int64_t window = options.window;
  return (!options.causal || block.query_position >= block.key_position + block.keys - 1) &&
         (window == 0 || block.query_position + block.queries - block.key_position <= window);
}

bool is_diagonal(const HeadsBlock& block, const AttentionOptions& options) {
  return block.query_position == block.key_position && block.queries == block.keys &&
         (options.window == 0 || block.queries <= options.window);
}

// Adds the block to those before it: queries that see the same keys, and keys that the same queries see, may be one
// call where they are neighbours.
void add_long_block(std::vector<LongBlock>& blocks, const HeadsBlock& block, bool causal) {
  if (!blocks.empty() && !causal && !blocks.back().causal && blocks.back().place.row == block.row) {
    HeadsBlock& last = blocks.back().place;
    if (last.key == block.key && last.keys == block.keys && last.query + last.queries == block.query) {
      last.queries += block.queries;
      return;
    }
    if (last.query == block.query && last.queries == block.queries && last.key + last.keys == block.key) {
      last.keys += block.keys;
      return;
    }
  }
  blocks.push_back({block, causal});
}

// One call of cuDNN.
class LongCall {
 public:
  LongCall(const HeadsMatrices& heads, const LongBlock& block, const HeadsSetup& setup)
      : heads_(views(heads, block.place, setup.options)),
        block_(block.place),
        options_(setup.options),
        call_{.causal = block.causal, .repeatable = setup.repeatable} {}

  // Calls of cuDNN start slower than ours: few pairs are not worth one.
  static bool serves(const HeadsMatrices& heads, const HeadsBlock& block, const HeadsSetup& setup) {
    constexpr std::int64_t kFewestPairs = std::int64_t{1} << 18;
    const AttentionOptions& options = setup.options;
    return heads.q.is_cuda() && (sees_all(block, options) || is_diagonal(block, options)) &&
           block.queries * block.keys >= kFewestPairs && !options.key_mask.defined() &&
           library_has(options.head_size) && aligned(options.head_size, {heads.q, heads.k, heads.v});
  }

  void forward(const HeadsSums& sums) const {
    const AttendedViews attended = library_forward(heads_, call_);
    join_block(sums, block_.query, attended.out[0], attended.lse[0]);
  }

  void backward(const AttendedQueries& queries, const HeadsMatrices& gradients) const {
    const AttendedViews attended = {query_view(queries.out), lse_of(queries.lse)};
    const HeadViews d = library_backward(heads_, attended, query_view(queries.d_out), call_);
    add_block(gradients.q.narrow(0, block_.query, block_.queries), d.q[0]);
    add_block(gradients.k.narrow(0, block_.key, block_.keys), d.k[0]);
    add_block(gradients.v.narrow(0, block_.key, block_.keys), d.v[0]);
  }

 private:
  // [tokens, channels] as [1, heads, tokens, head_size].
  static at::Tensor view(const at::Tensor& x, std::int64_t first, std::int64_t count, std::int64_t heads) {
    return x.narrow(0, first, count).unflatten(1, {heads, -1}).transpose(0, 1).unsqueeze(0);
  }
  static HeadViews views(const HeadsMatrices& matrices, const HeadsBlock& block, const AttentionOptions& options) {
    return {view(matrices.q, block.query, block.queries, options.heads),
            view(matrices.k, block.key, block.keys, options.kv_heads),
            view(matrices.v, block.key, block.keys, options.kv_heads)};
  }
  at::Tensor query_view(const at::Tensor& x) const { return view(x, block_.query, block_.queries, options_.heads); }
  at::Tensor lse_of(const at::Tensor& lse) const {
    return lse.narrow(1, block_.query, block_.queries).contiguous().unsqueeze(0);
  }

  HeadViews heads_;
  HeadsBlock block_;
  const AttentionOptions& options_;
  LibraryCall call_;
};

// Calls action(call) for the long ones and then for those that lie alike, in the order of the first of each. Returns
// those that neither serves.
template <class Action>
std::vector<HeadsBlock> for_calls(const HeadsMatrices& heads, std::vector<HeadsBlock> blocks, const HeadsSetup& setup,
                                  bool by_library, const Action& action) {
  std::vector<HeadsBlock> left;
  const AttentionOptions& options = setup.options;
  const auto others = std::stable_partition(blocks.begin(), blocks.end(), [&](const HeadsBlock& block) {
    return by_library && LongCall::serves(heads, block, setup);
  });
  std::vector<LongBlock> long_blocks;
  std::for_each(blocks.begin(), others, [&](const HeadsBlock& block) {
    add_long_block(long_blocks, block, /*causal=*/!sees_all(block, options));
  });
  for (const LongBlock& block : long_blocks) action(LongCall(heads, block, setup));
  blocks.erase(blocks.begin(), others);
  const auto in_window = [&](const HeadsBlock& block) {
    return options.window == 0 || block.query_position + block.queries - block.key_position <= options.window;
  };
  while (!blocks.empty()) {
    const HeadsBlock first = blocks.front();
    const auto rest = std::stable_partition(blocks.begin(), blocks.end(),
                                            [&](const HeadsBlock& block) { return lie_alike(block, first); });
    const std::vector<HeadsBlock> alike(blocks.begin(), rest);
    blocks.erase(blocks.begin(), rest);
    const AlikeBlocks call(heads, alike, setup);
    if (in_window(first) && call.is_served()) {
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
  return narrow && !setup.drops && has_kernels(heads.q.device()) && cuda::KernelLibrary::of_process().available();
}

std::vector<HeadsBlock> kernel_blocks_forward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                              const HeadsSetup& setup, const HeadsSums& sums) {
  return for_calls(heads, blocks, setup, /*by_library=*/true, [&](const auto& call) { call.forward(sums); });
}

std::vector<HeadsBlock> kernel_blocks_backward(const HeadsMatrices& heads, const std::vector<HeadsBlock>& blocks,
                                               const HeadsSetup& setup, const AttendedQueries& queries,
                                               const HeadsMatrices& gradients) {
  return for_calls(heads, blocks, setup, queries.out.defined(),
                   [&](const auto& call) { call.backward(queries, gradients); });
}

void add_block(const at::Tensor& sums, const at::Tensor& x) {
  const std::int64_t vectors = x.numel() / kLane;
  if (vectors == 0) return;
  cuda::kernel(kBlockSums, "add_block", {element(x)})(threads_for(vectors, x), data<float>(sums), data(x), vectors,
                                                      static_cast<int>(x.size(0)), static_cast<int>(x.size(2)),
                                                      Places(sums, x));
}

void join_block(const HeadsSums& sums, std::int64_t query, const at::Tensor& out, const at::Tensor& lse) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t heads = out.size(0), pairs = heads * out.size(1), size = out.size(2);
  if (pairs == 0) return;
  const at::Tensor block_lse = lse.stride(1) == 1 ? lse : lse.contiguous();
  cuda::LaunchShape shape = threads_for(0, out);
  const std::int64_t pairs_of_block = kThreads / (size / kLane);
  shape.blocks = static_cast<std::uint32_t>((pairs + pairs_of_block - 1) / pairs_of_block);
  cuda::kernel(kBlockSums, "join_block", {element(out)})(
      shape, data<float>(sums.out.narrow(0, query, out.size(1))), data<float>(sums.lse.narrow(1, query, out.size(1))),
      data(out), data<float>(block_lse), pairs, static_cast<int>(heads), static_cast<int>(size), Places(sums.out, out),
      LsePlaces{sums.lse.stride(0), block_lse.stride(0)});
}

}  // namespace orthant::nn::device
