// Attention over a cache, against attention over whole sequences and the plain formulas.
#include "orthant/ops/attention/cached_attention.h"

#include <algorithm>

#include "ops/oracle.h"
#include "orthant/ops/attention/cached_kernels.h"

namespace orthant::nn {
namespace cached_attention_test {

struct Shape {
  std::int64_t heads, kv_heads, head_size, window;
  bool rotates;
};
const std::vector<Shape> kShapes = {{1, 1, 2, 0, false},   {6, 2, 64, 0, true}, {4, 4, 6, 0, true},
                                    {5, 1, 20, 7, true},   {8, 2, 18, 1, true}, {3, 3, 17, 0, false},
                                    {16, 2, 128, 33, true}};
constexpr std::int64_t kMost = 320;

AttentionOptions options_of(const Shape& shape, at::ScalarType dtype) {
  AttentionOptions options{.heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head_size = shape.head_size,
                           .causal = true,
                           .window = shape.window};
  if (!shape.rotates) return options;
  std::vector<double> inverse;
  for (std::int64_t i = 0; i < shape.head_size / 2; ++i) inverse.push_back(1.0 / static_cast<double>(1 + 3 * i));
  options.rotary = rotary_table(kMost, inverse, 1, at::dtype(dtype));
  return options;
}

KeyCache make_cache(const Shape& shape, std::int64_t blocks, at::ScalarType dtype) {
  // What nobody wrote must not matter.
  return {at::full({blocks, shape.kv_heads, shape.head_size, kCacheBlock}, NAN, at::dtype(dtype)),
          at::full({blocks, shape.kv_heads, kCacheBlock, shape.head_size}, NAN, at::dtype(dtype))};
}

// Sequences of these lengths, computed in chunks side by side; blocks are dealt out from the last one down.
class Sequences {
 public:
  Sequences(const Shape& shape, const std::vector<std::int64_t>& lengths, at::ScalarType dtype)
      : shape_(shape), options_(options_of(shape, dtype)), cache_(make_cache(shape, 64, dtype)) {
    const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      qkv_.push_back(random_tensor({lengths[i], width}, 40 + i, dtype));
      out_.emplace_back();
      done_.push_back(0);
      blocks_.emplace_back();
    }
  }

  at::Tensor whole(std::size_t i) const {
    const at::Tensor qkv = qkv_[i].clone().unsqueeze(0);
    rotate_heads(qkv, options_);
    return plain_heads_forward(qkv, heads_setup(qkv, options_, Pass())).out[0];
  }

  bool step(std::int64_t chunk, bool plain) {
    CachedStep step{.sequences = {}, .most_positions = kMost};
    std::vector<at::Tensor> tokens;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < qkv_.size(); ++i) {
      const auto count = std::min(chunk + static_cast<std::int64_t>(i), qkv_[i].size(0) - done_[i]);
      if (count == 0) continue;
      while (static_cast<std::int64_t>(blocks_[i].size()) * kCacheBlock < done_[i] + count)
        blocks_[i].push_back(next_--);
      step.sequences.push_back({first, count, done_[i], blocks_[i]});
      tokens.push_back(qkv_[i].narrow(0, done_[i], count));
      first += count;
    }
    if (tokens.empty()) return false;
    const at::Tensor qkv = at::cat(tokens);
    const at::Tensor out =
        plain ? plain_cached_attention(qkv, options_, step, cache_) : cached_attention(qkv, options_, step, cache_);
    for (std::size_t i = 0, part = 0; i < qkv_.size() && part < step.sequences.size(); ++i) {
      const auto& sequence = step.sequences[part];
      if (done_[i] == qkv_[i].size(0)) continue;
      out_[i].push_back(out.narrow(0, sequence.first, sequence.tokens));
      done_[i] += sequence.tokens;
      ++part;
    }
    return true;
  }

  at::Tensor out(std::size_t i) const { return at::cat(out_[i]); }
  std::size_t size() const { return qkv_.size(); }

 private:
  Shape shape_;
  AttentionOptions options_;
  KeyCache cache_;
  std::vector<at::Tensor> qkv_;
  std::vector<std::vector<at::Tensor>> out_;
  std::vector<std::int64_t> done_;
  std::vector<std::vector<std::int32_t>> blocks_;
  std::int32_t next_ = 63;
};

TEST(CachedAttention, IsAttentionOverWholeSequencesInChunksOfAnySize) {
  at::NoGradGuard no_grad;
  for (const Shape& shape : kShapes) {
    for (const std::int64_t chunk : {7, 40}) {
      for (const bool plain : {false, true}) {
        SCOPED_TRACE(c10::str("heads ", shape.heads, " of ", shape.head_size, " chunk ", chunk, " plain ", plain));
        Sequences sequences(shape, {40, 1, 60}, at::kDouble);
        while (sequences.step(chunk, plain)) {
        }
        for (std::size_t i = 0; i < sequences.size(); ++i) {
          expect_close(sequences.out(i), sequences.whole(i), 1e-12, 1e-12, "attended");
        }
      }
    }
  }
}

TEST(CachedAttention, KeepsFloat32AndNarrowTypesNearThem) {
  at::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Sequences sequences({6, 2, 64, 0, true}, {40, 150}, dtype);
    Sequences exact({6, 2, 64, 0, true}, {40, 150}, at::kDouble);
    while (sequences.step(50, false)) {
    }
    const double bound = dtype == at::kFloat ? 2e-6 : 0.05;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(sequences.out(i).scalar_type(), dtype);
      if (dtype == at::kFloat) expect_close(sequences.out(i), exact.whole(i), bound, bound, "attended");
      expect_close(sequences.out(i), sequences.whole(i), bound, bound, "attended");
    }
  }
}

// One key/value head, by the kernels of every instruction set of this CPU.
template <class T>
void compare_instruction_sets(std::int64_t heads, std::int64_t queries, std::int64_t past, std::int64_t window) {
  const std::int64_t size = 21, keys = past + queries, blocks = (keys + kCacheBlock - 1) / kCacheBlock;
  const auto dtype = c10::CppTypeToScalarType<T>::value;
  const at::Tensor q = random_tensor({queries, heads, size}, 1, dtype);
  const at::Tensor k = random_tensor({keys, size}, 2, dtype), v = random_tensor({keys, size}, 3, dtype);
  KeyCache cache = make_cache({heads, 1, size, window, false}, blocks, dtype);
  std::vector<std::int32_t> table;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto block = blocks - 1 - b, count = std::min(kCacheBlock, keys - b * kCacheBlock);
    table.push_back(static_cast<std::int32_t>(block));
    cache.keys[block][0].narrow(1, 0, count).copy_(k.narrow(0, b * kCacheBlock, count).t());
    cache.values[block][0].narrow(0, 0, count).copy_(v.narrow(0, b * kCacheBlock, count));
  }
  const at::Tensor i = at::arange(queries).view({-1, 1, 1}) + past, j = at::arange(keys).view({1, 1, -1});
  at::Tensor hidden = j > i;
  if (window > 0) hidden = hidden.logical_or(j <= i - window);
  const at::Tensor scores =
      at::matmul(q.to(at::kDouble), k.to(at::kDouble).t()).mul(0.3).masked_fill(hidden, -INFINITY);
  const at::Tensor expected = at::matmul(at::softmax(scores, -1), v.to(at::kDouble));
  for (const auto isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    const at::Tensor out = at::empty_like(q), scratch = at::empty({kernels::cached_scratch(size)}, q.options());
    kernels::kernels_of<kernels::CachedKernels<T>>(isa).attend({.queries = queries,
                                                                .past = past,
                                                                .heads = heads,
                                                                .head_size = size,
                                                                .window = window,
                                                                .scale = static_cast<T>(0.3),
                                                                .q = q.const_data_ptr<T>(),
                                                                .q_stride = heads * size,
                                                                .out = out.mutable_data_ptr<T>(),
                                                                .out_stride = heads * size,
                                                                .keys = cache.keys.const_data_ptr<T>(),
                                                                .values = cache.values.const_data_ptr<T>(),
                                                                .block_stride = size * kCacheBlock,
                                                                .blocks = table.data(),
                                                                .scratch = scratch.mutable_data_ptr<T>()});
    const double bound = dtype == at::kDouble ? 1e-13 : 2e-6;
    expect_close(out, expected, bound, bound, c10::str("set ", static_cast<int>(isa)));
  }
}

TEST(CachedAttention, EveryInstructionSetComputesTheSame) {
  for (const std::int64_t heads : {1, 3}) {
    for (const std::int64_t queries : {1, 5, 19}) {
      for (const std::int64_t past : {0, 130}) {
        for (const std::int64_t window : {0, 9}) {
          SCOPED_TRACE(c10::str(heads, " heads, ", queries, " queries after ", past, ", window ", window));
          compare_instruction_sets<float>(heads, queries, past, window);
          compare_instruction_sets<double>(heads, queries, past, window);
        }
      }
    }
  }
}

TEST(CachedAttention, RefusesAStepThatDoesNotFit) {
  const Shape shape{2, 1, 4, 0, false};
  const auto options = options_of(shape, at::kDouble);
  const KeyCache cache = make_cache(shape, 2, at::kDouble);
  const at::Tensor qkv = at::zeros({2, 16}, at::kDouble);
  const CachedStep step{.sequences = {{0, 1, 0, {0}}}, .most_positions = kMost};
  EXPECT_THROW(cached_attention(qkv, options, step, cache), std::runtime_error) << "two tokens, one of them nobody's";
  const CachedStep short_table{.sequences = {{0, 2, 15, {0}}}, .most_positions = kMost};
  EXPECT_THROW(cached_attention(qkv, options, short_table, cache), std::runtime_error);
}

}  // namespace cached_attention_test
}  // namespace orthant::nn
