#include "orthant/ops/attention/cached_attention_device.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "orthant/nn/device_kernels.h"

namespace orthant::cuda::sources {
extern const std::string_view cached_attention;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kCachedAttention{
    "ops/attention/cached_attention.cu", cuda::sources::cached_attention, {"ELEMENT", "HEAD", "SHARED"}};

constexpr std::int64_t kMostChannels = 128;
constexpr std::int64_t kChannels = 16;  // whose multiples a head may have
constexpr std::uint32_t kWarps = 8, kThreads = 32 * kWarps, kFilingThreads = 128;

// As cached_attention.cu has it.
struct CachedArguments {
  void* out;
  const void* qkv;
  void* keys;
  void* values;
  const void* cosines;
  const void* sines;
  const std::int64_t* sequences;
  const std::int64_t* tables;
  const std::int64_t* tiles;
  float* parts;
  int num_tiles, heads, kv_heads, size, table_width, window, chunks;
  int files;
  float scale;
};

// The value of HEAD.
int padded(std::int64_t head_size) {
  return static_cast<int>((head_size + 31) / 32 * 32);
}

bool fits(std::int64_t head_size) {
  return head_size > 0 && head_size <= kMostChannels && head_size % kChannels == 0;
}

bool lies_by_keys(const KeyCache& cache) {
  return cache.keys.transpose(2, 3).is_contiguous() && cache.values.transpose(2, 3).is_contiguous();
}

}  // namespace

bool serves_cached_heads(std::int64_t head_size, const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  return has_kernels(options.device()) && (type == at::kBFloat16 || type == at::kHalf) && fits(head_size) &&
         cuda::KernelLibrary::of_process().available();
}

bool serves_cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                             const KeyCache& cache) {
  const auto is_whole = [&](const at::Tensor& table) {
    return !table.defined() || (table.is_contiguous() && table.scalar_type() == qkv.scalar_type() &&
                                table.size(0) >= step.most_positions && table.size(1) * 2 == options.head_size);
  };
  return step.lists.defined() && cache.keys.defined() && serves(qkv) &&
         serves_cached_heads(options.head_size, qkv.options()) && aligned(options.head_size, {qkv}) &&
         cache.keys.scalar_type() == qkv.scalar_type() && cache.keys.size(1) == options.kv_heads &&
         lies_by_keys(cache) && options.heads == step.lists.shared * options.kv_heads && is_whole(options.rotary.cos) &&
         is_whole(options.rotary.sin);
}

at::Tensor cached_attention(const at::Tensor& qkv, const AttentionOptions& options, const CachedStep& step,
                            const KeyCache& cache) {
  const CachedLists& lists = step.lists;
  const at::Tensor out = at::empty({qkv.size(0), options.heads * options.head_size}, qkv.options());
  const std::int64_t tiles = lists.tiles.size(0), single = lists.single;
  const auto kv_heads = static_cast<std::uint32_t>(options.kv_heads);
  CachedArguments arguments{.out = data(out),
                            .qkv = data(qkv),
                            .keys = data(cache.keys),
                            .values = data(cache.values),
                            .cosines = data(options.rotary.cos),
                            .sines = data(options.rotary.sin),
                            .sequences = data<std::int64_t>(lists.sequences),
                            .tables = data<std::int64_t>(lists.tables),
                            .tiles = data<std::int64_t>(lists.tiles),
                            .parts = nullptr,
                            .num_tiles = static_cast<int>(single),
                            .heads = static_cast<int>(options.heads),
                            .kv_heads = static_cast<int>(options.kv_heads),
                            .size = static_cast<int>(options.head_size),
                            .table_width = static_cast<int>(lists.tables.size(1)),
                            .window = static_cast<int>(options.window),
                            .chunks = static_cast<int>(lists.chunks),
                            .files = 0,
                            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(options.head_size)))};
  const int type = element(qkv), head = padded(options.head_size);
  const auto start = [&](const char* name, int shared, const cuda::LaunchShape& shape, auto... arguments_of_it) {
    cuda::kernel(kCachedAttention, name, {type, head, shared})(shape, arguments_of_it...);
  };
  // A block of threads reads what it files itself, where nobody else needs it.
  const bool files = single == tiles && lists.sequences.size(0) == tiles;
  if (!files && qkv.size(0) > 0) {
    start("file_keys", 0,
          {.blocks = static_cast<std::uint32_t>(qkv.size(0)),
           .threads = kFilingThreads,
           .stream = stream(qkv),
           .early = true},
          arguments, static_cast<const std::int64_t*>(data<std::int64_t>(lists.sequence_of)),
          static_cast<const std::int64_t*>(data<std::int64_t>(lists.positions)));
  }
  if (single > 0) {
    arguments.files = files ? 1 : 0;
    at::Tensor parts;
    if (lists.chunks > 1) {
      parts = at::empty({single, options.kv_heads, lists.chunks, kTileRows, options.head_size + 2},
                        qkv.options().dtype(at::kFloat));
      arguments.parts = data<float>(parts);
    }
    const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(single),
                                  .blocks_y = kv_heads,
                                  .blocks_z = static_cast<std::uint32_t>(lists.chunks),
                                  .threads = kThreads,
                                  .shared_bytes = kWarps * static_cast<std::uint32_t>(kTileRows * (head + 2) * 4),
                                  .stream = stream(qkv),
                                  .early = true};
    start("attend", 1, shape, arguments);
    if (lists.chunks > 1) {
      start("join_chunks", 1,
            {.blocks = static_cast<std::uint32_t>(single),
             .blocks_y = kv_heads,
             .threads = kThreads,
             .stream = stream(qkv),
             .early = true},
            arguments);
    }
  }
  if (single < tiles) {
    arguments.tiles += 2 * single;
    arguments.num_tiles = static_cast<int>(tiles - single);
    start("attend", 0,
          {.blocks = static_cast<std::uint32_t>((tiles - single + kWarps - 1) / kWarps),
           .blocks_y = kv_heads,
           .threads = kThreads,
           .stream = stream(qkv),
           .early = true},
          arguments);
  }
  return out;
}

Variants cached_attention_variants(at::ScalarType dtype, std::int64_t head_size) {
  if ((dtype != at::kBFloat16 && dtype != at::kHalf) || !fits(head_size)) return {};
  const int head = padded(head_size);
  return {{&kCachedAttention, {element(dtype), head, 0}}, {&kCachedAttention, {element(dtype), head, 1}}};
}

}  // namespace orthant::nn::device
