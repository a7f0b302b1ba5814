#include "orthant/ops/attention/cached_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "orthant/base/error.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/attention/cached_attention_device.h"
#include "orthant/ops/attention/cached_kernels.h"

namespace orthant::nn {
namespace {

void check_cached(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                  const KeyCache& cache) {
  std::int64_t tokens = 0;
  bool fits = true;
  for (const auto& sequence : step.sequences) {
    const auto last = sequence.past + sequence.tokens;
    fits = fits && sequence.first == tokens && sequence.tokens > 0 && last <= step.most_positions &&
           static_cast<std::int64_t>(sequence.blocks.size()) * kCacheBlock >= last;
    tokens += sequence.tokens;
  }
  const bool heads = cache.keys.defined() && cache.keys.size(1) == options.kv_heads &&
                     cache.keys.size(2) == options.head_size && cache.keys.scalar_type() == qkv.scalar_type();
  if (fits && heads && qkv.dim() == 2 && qkv.size(0) == tokens && qkv.is_contiguous() &&
      qkv.size(1) == (options.heads + 2 * options.kv_heads) * options.head_size) {
    return;
  }
  throw InternalError(fmt::format(
      "cached attention of {} tokens in {} sequences, {} heads and {} key/value heads of size {}: qkv is {}, the cache "
      "{}",
      tokens, step.sequences.size(), options.heads, options.kv_heads, options.head_size, c10::str(qkv.sizes()),
      cache.keys.defined() ? c10::str(cache.keys.sizes()) : "not there"));
}

// The same step for kernels of T.
template <class T>
class CachedRun {
 public:
  CachedRun(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step, const KeyCache& cache,
            const at::Tensor& out)
      : options_(options),
        step_(step),
        qkv_(qkv.mutable_data_ptr<T>()),
        out_(out.mutable_data_ptr<T>()),
        keys_(cache.keys.mutable_data_ptr<T>()),
        values_(cache.values.mutable_data_ptr<T>()),
        width_(qkv.size(1)),
        head_elements_(options.head_size * kCacheBlock),
        block_elements_(options.kv_heads * head_elements_) {
    if (!options.rotary.cos.defined()) return;
    cos_ = options.rotary.cos.to(qkv.scalar_type()).contiguous();
    sin_ = options.rotary.sin.to(qkv.scalar_type()).contiguous();
  }

  void file() {
    at::parallel_for(0, static_cast<std::int64_t>(step_.sequences.size()), 8,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (; begin < end; ++begin) {
                         const auto& sequence = step_.sequences[static_cast<std::size_t>(begin)];
                         for (std::int64_t i = 0; i < sequence.tokens; ++i) file_token(sequence, i);
                       }
                     });
  }

  void attend() {
    const auto groups = static_cast<std::int64_t>(step_.sequences.size()) * options_.kv_heads;
    at::parallel_for(0, groups, 1, [&](std::int64_t begin, std::int64_t end) {
      const auto scratch = at::empty({kernels::cached_scratch(options_.head_size)}, c10::CppTypeToScalarType<T>::value);
      for (; begin < end; ++begin) {
        const auto& sequence = step_.sequences[static_cast<std::size_t>(begin / options_.kv_heads)];
        attend_group(sequence, begin % options_.kv_heads, scratch.template mutable_data_ptr<T>());
      }
    });
  }

 private:
  void file_token(const CachedSequence& sequence, std::int64_t i) {
    const std::int64_t size = options_.head_size, position = sequence.past + i;
    T* const token = qkv_ + (sequence.first + i) * width_;
    if (cos_.defined()) {
      const std::int64_t angles = position * (size / 2);
      table_.turn({token, options_.heads + options_.kv_heads, size, cos_.template const_data_ptr<T>() + angles,
                   sin_.template const_data_ptr<T>() + angles});
    }
    const std::int64_t block = sequence.blocks[static_cast<std::size_t>(position / kCacheBlock)];
    const std::int64_t place = position % kCacheBlock;
    for (std::int64_t h = 0; h < options_.kv_heads; ++h) {
      const std::int64_t head = block * block_elements_ + h * head_elements_;
      const T* const key = token + (options_.heads + h) * size;
      const T* const value = key + options_.kv_heads * size;
      for (std::int64_t c = 0; c < size; ++c) keys_[head + c * kCacheBlock + place] = key[c];
      std::copy(value, value + size, values_ + head + place * size);
    }
  }

  void attend_group(const CachedSequence& sequence, std::int64_t h, T* scratch) {
    const std::int64_t size = options_.head_size, shared = options_.heads / options_.kv_heads;
    table_.attend({.queries = sequence.tokens,
                   .past = sequence.past,
                   .heads = shared,
                   .head_size = size,
                   .window = options_.window,
                   .scale = static_cast<T>(1 / std::sqrt(static_cast<double>(size))),
                   .q = qkv_ + sequence.first * width_ + h * shared * size,
                   .q_stride = width_,
                   .out = out_ + (sequence.first * options_.heads + h * shared) * size,
                   .out_stride = options_.heads * size,
                   .keys = keys_ + h * head_elements_,
                   .values = values_ + h * head_elements_,
                   .block_stride = block_elements_,
                   .blocks = sequence.blocks.data(),
                   .scratch = scratch});
  }

  const AttentionOptions& options_;
  const CachedStep& step_;
  T* qkv_;
  T* out_;
  T* keys_;
  T* values_;
  std::int64_t width_;
  std::int64_t head_elements_;
  std::int64_t block_elements_;
  at::Tensor cos_, sin_;
  const kernels::CachedKernels<T>& table_ = kernels::kernels<kernels::CachedKernels<T>>();
};

// Sequences with equally many new tokens, as one batch of matrices.
struct AlikeSequences {
  std::vector<const CachedSequence*> sequences;
  std::int64_t blocks = 0;  // of the longest table
};

std::map<std::int64_t, AlikeSequences> by_tokens(const CachedStep& step) {
  std::map<std::int64_t, AlikeSequences> found;
  for (const auto& sequence : step.sequences) {
    auto& alike = found[sequence.tokens];
    alike.sequences.push_back(&sequence);
    alike.blocks = std::max(alike.blocks, (sequence.past + sequence.tokens + kCacheBlock - 1) / kCacheBlock);
  }
  return found;
}

at::Tensor numbers(const std::vector<std::int64_t>& values, at::IntArrayRef shape, const at::Tensor& like) {
  return at::tensor(values, at::kLong).view(shape).to(like.device(), /*non_blocking=*/true);
}

// out of sequences with equally many tokens, whose keys and values are filed.
void attend_alike(const AlikeSequences& alike, const at::Tensor& qkv, const AttentionOptions& options,
                  const KeyCache& cache, const at::Tensor& out) {
  const auto count = static_cast<std::int64_t>(alike.sequences.size()), tokens = alike.sequences.front()->tokens;
  std::vector<std::int64_t> rows, past, blocks;
  for (const auto* sequence : alike.sequences) {
    past.push_back(sequence->past);
    for (std::int64_t i = 0; i < tokens; ++i) rows.push_back(sequence->first + i);
    for (std::int64_t b = 0; b < alike.blocks; ++b) {
      const bool has = b < static_cast<std::int64_t>(sequence->blocks.size());
      blocks.push_back(has ? std::max(sequence->blocks[static_cast<std::size_t>(b)], 0) : 0);
    }
  }
  const std::int64_t size = options.head_size, kv = options.kv_heads, shared = options.heads / kv;
  const std::int64_t keys = alike.blocks * kCacheBlock;
  const at::Tensor row = numbers(rows, {count * tokens}, qkv), table = numbers(blocks, {count * alike.blocks}, qkv);
  const at::Tensor first = numbers(past, {count, 1, 1}, qkv);
  // [sequence, kv, shared * tokens, size] against [sequence, kv, size, keys]
  const at::Tensor q = qkv.index_select(0, row)
                           .narrow(1, 0, options.heads * size)
                           .view({count, tokens, kv, shared, size})
                           .permute({0, 2, 3, 1, 4})
                           .reshape({count, kv, shared * tokens, size});
  const at::Tensor k = cache.keys.index_select(0, table)
                           .view({count, alike.blocks, kv, size, kCacheBlock})
                           .permute({0, 2, 3, 1, 4})
                           .reshape({count, kv, size, keys});
  at::Tensor v = cache.values.index_select(0, table)
                     .view({count, alike.blocks, kv, kCacheBlock, size})
                     .permute({0, 2, 1, 3, 4})
                     .reshape({count, kv, keys, size});
  const at::Tensor key = at::arange(keys, first.options()).view({1, 1, keys});
  const at::Tensor query = first + at::arange(tokens, first.options()).view({1, tokens, 1});
  at::Tensor hidden = key > query;
  if (options.window > 0) hidden = hidden.logical_or(key <= query - options.window);
  // What lies in blocks that no token of the sequence has written is not to be weighed, whatever it is.
  const at::Tensor unwritten = (key > query.narrow(1, tokens - 1, 1)).view({count, 1, keys, 1});
  v = v.masked_fill(unwritten, 0);
  at::Tensor scores = at::matmul(q, k).to(kernels::compute_dtype(q)).mul_(1 / std::sqrt(static_cast<double>(size)));
  scores = scores.view({count, kv, shared, tokens, keys})
               .masked_fill(hidden.view({count, 1, 1, tokens, keys}), -std::numeric_limits<double>::infinity());
  const at::Tensor p = at::softmax(scores, -1).to(v.scalar_type()).view({count, kv, shared * tokens, keys});
  const at::Tensor attended = at::matmul(p, v).view({count, kv, shared, tokens, size}).permute({0, 3, 1, 2, 4});
  at::Tensor to = out;
  to.index_copy_(0, row, attended.reshape({count * tokens, options.heads * size}));
}

}  // namespace

KeyCache make_key_cache(std::int64_t blocks, std::int64_t kv_heads, std::int64_t head_size,
                        const at::TensorOptions& options) {
  const std::array<std::int64_t, 4> by_channels = {blocks, kv_heads, head_size, kCacheBlock};
  const std::array<std::int64_t, 4> by_keys = {blocks, kv_heads, kCacheBlock, head_size};
  if (!device::serves_cached_heads(head_size, options)) {
    return {at::empty(by_channels, options), at::empty(by_keys, options)};
  }
  return {at::empty(by_keys, options).transpose(2, 3), at::empty(by_channels, options).transpose(2, 3)};
}

at::Tensor cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                            const KeyCache& cache) {
  if (device::serves_cached_attention(qkv, options, step, cache)) {
    return device::cached_attention(qkv, options, step, cache);
  }
  if (!kernels::serve(qkv)) return plain_cached_attention(qkv, options, step, cache);
  check_cached(qkv, options, step, cache);
  const at::Tensor out = at::empty({qkv.size(0), options.heads * options.head_size}, qkv.options());
  kernels::with_element(qkv, [&](auto element) {
    CachedRun<decltype(element)> run(qkv, options, step, cache, out);
    run.file();
    run.attend();
  });
  return out;
}

at::Tensor plain_cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                                  const KeyCache& cache) {
  check_cached(qkv, options, step, cache);
  std::vector<std::int64_t> positions, blocks, places;
  for (const auto& sequence : step.sequences) {
    for (std::int64_t i = 0; i < sequence.tokens; ++i) {
      const std::int64_t position = sequence.past + i;
      positions.push_back(position);
      blocks.push_back(sequence.blocks[static_cast<std::size_t>(position / kCacheBlock)]);
      places.push_back(position % kCacheBlock);
    }
  }
  const std::int64_t tokens = qkv.size(0), size = options.head_size;
  AttentionOptions turning = options;
  turning.positions = numbers(positions, {1, tokens}, qkv);
  rotate_heads(qkv.unsqueeze(0), turning);
  const at::Tensor block = numbers(blocks, {tokens}, qkv), place = numbers(places, {tokens}, qkv);
  const at::Tensor k = qkv.narrow(1, options.heads * size, options.kv_heads * size);
  const at::Tensor v = qkv.narrow(1, (options.heads + options.kv_heads) * size, options.kv_heads * size);
  at::Tensor filed_keys = cache.keys.permute({0, 3, 1, 2});  // [block, place, kv, size]
  at::Tensor filed_values = cache.values.permute({0, 2, 1, 3});
  filed_keys.index_put_({block, place}, k.view({tokens, options.kv_heads, size}));
  filed_values.index_put_({block, place}, v.view({tokens, options.kv_heads, size}));
  const at::Tensor out = at::empty({tokens, options.heads * size}, qkv.options());
  for (const auto& [count, alike] : by_tokens(step)) attend_alike(alike, qkv, options, cache, out);
  return out;
}

}  // namespace orthant::nn
