// Kernels of a generation on a card against plain formulas in float64: products of few rows, attention over a cache.
#include <algorithm>

#include "ops/device_case.h"
#include "orthant/ops/attention/cached_attention.h"
#include "orthant/ops/attention/cached_attention_device.h"
#include "orthant/ops/attention/cached_lists.h"
#include "orthant/ops/linear/few_rows_device.h"
#include "orthant/ops/packed_rows.h"

namespace orthant::nn {
namespace device_generation_test {

using namespace device_case;

at::ScalarType narrow_type(Random& random) {
  return random.between(0, 2) == 0 ? at::kHalf : at::kBFloat16;
}

// Of weights whose products are near one.
at::Tensor weights(at::IntArrayRef shape, at::ScalarType dtype, std::int64_t depth) {
  return (at::randn(shape, on_card(at::kFloat)) / std::sqrt(static_cast<double>(depth))).to(dtype);
}

at::Tensor plain_few_rows(const device::FewRowsProduct& p) {
  at::Tensor x = wide(p.x);
  if (p.norm_weight.defined()) {
    x = x * (x.square().mean(1, /*keepdim=*/true) + p.eps).rsqrt() * wide(p.norm_weight);
  }
  at::Tensor y = at::mm(x, wide(p.weight).t());
  if (p.bias.defined()) y = y + wide(p.bias);
  if (p.gated) {
    const auto halves = y.chunk(2, 1);
    y = at::silu(halves[0]) * halves[1];
  }
  return p.added.defined() ? y + wide(p.added) : y;
}

TEST(DeviceGeneration, FewRowsMeetTheWeight) {
  Random random(31);
  for (int i = 0; i < kShapes; ++i) {
    const auto dtype = narrow_type(random);
    const std::int64_t rows = random.between(1, device::kMostFewRows), depth = 32 * random.between(1, 24);
    const std::int64_t outputs = random.between(0, 9) == 0 ? 8192 + random.between(0, 40) : random.between(1, 100);
    device::FewRowsProduct product{.x = values({rows, depth + 8}, dtype).narrow(1, 0, depth), .weight = {}};
    product.gated = random.between(0, 2) == 0;
    product.weight = weights({outputs * (product.gated ? 2 : 1), depth}, dtype, depth);
    if (random.between(0, 1) == 0) product.bias = values({product.weight.size(0)}, dtype);
    if (random.between(0, 1) == 0) product.added = values({rows, outputs + 1}, dtype).narrow(1, 1, outputs);
    if (dtype == at::kBFloat16 && random.between(0, 1) == 0) {
      product.norm_weight = values({depth}, dtype);
      product.eps = 1e-5;
    }
    const auto what = fmt::format("{} rows, {} of {}, gated {}, norm {}, {}", rows, outputs, depth, product.gated,
                                  product.norm_weight.defined(), c10::toString(dtype));
    ASSERT_TRUE(device::serves_few_rows(product)) << what;
    const auto got = twice([&] { return std::vector<at::Tensor>{device::few_rows(product)}; }, what);
    expect_near(got[0], plain_few_rows(product), 2 * bound(dtype), what);
  }
}

TEST(DeviceGeneration, ARowOfFewIsTheSameBesideAnyOthers) {
  const BelowAutograd below;
  Random random(32);
  const at::Tensor x = values({32, 288}, at::kBFloat16);
  device::FewRowsProduct all{.x = x, .weight = weights({48, 288}, at::kBFloat16, 288)};
  all.norm_weight = values({288}, at::kBFloat16);
  const at::Tensor together = device::few_rows(all);
  for (const std::int64_t rows : {1, 7, 9, 17}) {
    device::FewRowsProduct some = all;
    some.x = x.narrow(0, 0, rows);
    EXPECT_TRUE(at::equal(device::few_rows(some), together.narrow(0, 0, rows))) << rows;
  }
}

TEST(DeviceGeneration, RefusesRowsThatItsKernelCannotRead) {
  device::FewRowsProduct product{.x = values({4, 64}, at::kBFloat16), .weight = values({8, 64}, at::kBFloat16)};
  EXPECT_TRUE(device::serves_few_rows(product));
  product.x = values({33, 64}, at::kBFloat16);
  EXPECT_FALSE(device::serves_few_rows(product)) << "too many rows";
  product = {.x = values({4, 40}, at::kBFloat16), .weight = values({8, 40}, at::kBFloat16)};
  EXPECT_FALSE(device::serves_few_rows(product)) << "a depth that is no multiple of 32";
  product = {.x = values({4, 65}, at::kBFloat16).narrow(1, 1, 64), .weight = values({8, 64}, at::kBFloat16)};
  EXPECT_FALSE(device::serves_few_rows(product)) << "rows at odd places";
  product = {.x = values({4, 64}, at::kFloat), .weight = values({8, 64}, at::kFloat)};
  EXPECT_FALSE(device::serves_few_rows(product)) << "float32";
}

// Sequences whose pasts lie in a cache, and their new tokens.
struct CachedCase {
  AttentionOptions options;
  CachedStep step;
  KeyCache cache;
  at::Tensor qkv;
};

constexpr std::int64_t kMostPositions = 1100;

CachedCase random_case(Random& random, bool single) {
  const auto dtype = narrow_type(random);
  CachedCase made;
  AttentionOptions& options = made.options;
  const std::int64_t shared[] = {1, 2, 4, 7, 16, 20};
  options.kv_heads = random.between(1, 3);
  options.heads = options.kv_heads * shared[random.between(0, 5)];
  options.head_size = 16 * random.between(1, 8);
  options.causal = true;
  options.window = random.between(0, 2) == 0 ? random.between(1, 300) : 0;
  if (random.between(0, 3) > 0) {
    std::vector<double> inverse;
    for (std::int64_t i = 0; i < options.head_size / 2; ++i) inverse.push_back(1.0 / static_cast<double>(1 + 3 * i));
    options.rotary = rotary_table(kMostPositions, inverse, 1, on_card(dtype));
  }
  made.step.most_positions = kMostPositions;
  const auto count = random.between(1, 5);
  std::int64_t first = 0;
  std::int32_t block = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> written;  // a block, and how many of its tokens
  for (std::int64_t s = 0; s < count; ++s) {
    CachedSequence sequence{.first = first, .tokens = single ? 1 : random.between(1, 40)};
    sequence.past = random.between(0, 2) == 0 ? random.between(0, 1000) : random.between(0, 60);
    const auto keys = sequence.past + sequence.tokens;
    const auto behind = options.window > 0 ? std::max<std::int64_t>(sequence.past - options.window + 1, 0) : 0;
    for (std::int64_t b = 0; b * kCacheBlock < keys; ++b) {
      const bool forgotten = (b + 1) * kCacheBlock <= behind;
      sequence.blocks.push_back(forgotten ? -1 : block++);
      if (!forgotten) written.emplace_back(block - 1, std::clamp<std::int64_t>(sequence.past - b * kCacheBlock, 0, 16));
    }
    first += sequence.tokens;
    made.step.sequences.push_back(std::move(sequence));
  }
  made.cache = make_key_cache(block, options.kv_heads, options.head_size, on_card(dtype));
  made.cache.keys.fill_(NAN);  // what nobody wrote must not matter
  made.cache.values.fill_(NAN);
  for (const auto& [number, tokens] : written) {
    if (tokens == 0) continue;
    made.cache.keys[number].narrow(2, 0, tokens).normal_();
    made.cache.values[number].narrow(1, 0, tokens).normal_();
  }
  made.qkv = values({first, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
  return made;
}

KeyCache copy_of(const KeyCache& cache, at::ScalarType dtype) {
  return {cache.keys.to(dtype, /*non_blocking=*/false, /*copy=*/true),
          cache.values.to(dtype, /*non_blocking=*/false, /*copy=*/true)};
}

CachedLists on_its_card(CachedLists lists) {
  for (auto* tensor : {&lists.sequences, &lists.tables, &lists.tiles, &lists.sequence_of, &lists.positions}) {
    *tensor = tensor->to(test::card());
  }
  return lists;
}

// What plain formulas make of it in float64, and the keys and values that they file.
std::vector<at::Tensor> plain(const CachedCase& given) {
  const KeyCache cache = copy_of(given.cache, at::kDouble);
  AttentionOptions options = given.options;
  if (options.rotary.cos.defined()) options.rotary = {wide(options.rotary.cos), wide(options.rotary.sin)};
  CachedStep step = given.step;
  step.lists = {};
  const at::Tensor out = plain_cached_attention(wide(given.qkv), options, step, cache);
  return {out, cache.keys, cache.values};
}

std::vector<at::Tensor> by_kernels(const CachedCase& given, const CachedPlaces& places) {
  CachedStep step{.sequences = {}, .most_positions = given.step.most_positions};
  step.lists = on_its_card(cached_lists(given.step.sequences, given.options.heads / given.options.kv_heads, places));
  KeyCache cache = make_key_cache(given.cache.keys.size(0), given.options.kv_heads, given.options.head_size,
                                  given.cache.keys.options());
  cache.keys.copy_(given.cache.keys);
  cache.values.copy_(given.cache.values);
  const auto beyond = places.sequences - static_cast<std::int64_t>(given.step.sequences.size());
  const at::Tensor qkv = at::cat({given.qkv, values({beyond, given.qkv.size(1)}, given.qkv.scalar_type())});
  if (!device::serves_cached_attention(qkv, given.options, step, cache)) ADD_FAILURE() << "not served";
  const at::Tensor out = cached_attention(qkv, given.options, step, cache);
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  return {out.narrow(0, 0, given.qkv.size(0)), cache.keys.contiguous(), cache.values.contiguous()};
}

void compare(const CachedCase& given, const CachedPlaces& places, const std::string& what) {
  const auto wanted = plain(given);
  const auto got = twice(
      [&] {
        auto all = by_kernels(given, places);
        for (auto& tensor : all) tensor = at::nan_to_num(tensor, 7);
        return all;
      },
      what);
  expect_near(got[0], wanted[0], 3 * bound(given.qkv.scalar_type()), what);
  for (const std::size_t i : {1, 2}) {
    expect_near(got[i], at::nan_to_num(wanted[i], 7), 2 * bound(given.qkv.scalar_type()), what + " filed");
  }
}

TEST(DeviceGeneration, ChunksOfPromptsMeetTheirCache) {
  const BelowAutograd below;
  Random random(33);
  for (int i = 0; i < kShapes; ++i) {
    const CachedCase given = random_case(random, false);
    compare(given, exact_places(given.step.sequences), fmt::format("case {}", i));
  }
}

TEST(DeviceGeneration, NextTokensMeetTheirCacheInPlacesForMore) {
  const BelowAutograd below;
  Random random(34);
  for (int i = 0; i < kShapes; ++i) {
    const CachedCase given = random_case(random, true);
    const CachedPlaces exact = exact_places(given.step.sequences);
    const CachedPlaces more{exact.sequences + random.between(0, 3), exact.blocks + random.between(0, 40)};
    compare(given, more, fmt::format("case {}", i));
    const auto alone = by_kernels(given, exact), among = by_kernels(given, more);
    EXPECT_TRUE(at::equal(alone[0], among[0])) << "places of nobody change bits, case " << i;
  }
}

}  // namespace device_generation_test
}  // namespace orthant::nn
