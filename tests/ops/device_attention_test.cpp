// Attention with dropout and hidden keys on a CUDA device: see device_case.h. Bits of what stays are the CPU's.
#include <numeric>

#include "ops/device_case.h"
#include "ops/dropout_factors.h"
#include "orthant/ops/attention/attention_blocks.h"
#include "orthant/ops/attention/attention_heads.h"

namespace orthant::nn::device_attention_test {

using namespace device_case;

struct Drawn {
  at::ScalarType dtype = at::kBFloat16;
  HeadsSetup setup;
  Pass pass;
  std::int64_t rows = 1, sequence = 1;
  at::Tensor qkv, d_out;
  std::string what;

  Drawn(Random& random, bool drops, std::int64_t most, bool shares_keys = true) {
    dtype = random.between(0, 1) == 0 ? at::kBFloat16 : at::kHalf;
    AttentionOptions options;
    const std::int64_t sizes[] = {32, 64, 64, 128};
    options.head_size = sizes[random.between(0, 3)];
    options.kv_heads = random.between(1, 3);
    options.heads = options.kv_heads * (!shares_keys || random.between(0, 1) == 0 ? 1 : random.between(2, 3));
    options.causal = random.between(0, 1) == 0;
    options.first_head = random.between(0, 9);
    options.site = fmt::format("layers.{}.attention", random.between(0, 30));
    options.dropout = drops ? 0.1 * static_cast<double>(random.between(1, 6)) : 0;
    rows = random.between(1, 3);
    sequence = random.between(1, most);
    pass.training = true;
    pass.seed = static_cast<std::uint64_t>(random.between(0, 1 << 30));
    pass.step = random.between(0, 5000);
    pass.first_row = random.between(0, 10000);
    if (random.between(0, 1) == 0) options.key_mask = at::rand({rows, sequence}, on_card(at::kFloat)).lt(0.7);
    if (random.between(0, 2) == 0) {
      const auto angles = at::rand({sequence, options.head_size / 2}, on_card(at::kFloat)) * 7;
      options.rotary = {angles.cos(), angles.sin()};
    }
    qkv = values({rows, sequence, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
    d_out = values({rows, sequence, options.heads * options.head_size}, dtype);
    setup = heads_setup(qkv, options, pass);
    what = fmt::format("attention {} x {}, {} heads from {}, {} kv, size {}, causal {}, masked {}, dropout {}, {}",
                       rows, sequence, options.heads, options.first_head, options.kv_heads, options.head_size,
                       options.causal, options.key_mask.defined(), options.dropout, c10::toString(dtype));
  }
};

TEST(DeviceAttention, WithDropoutAndHiddenKeys) {
  Random random(61);
  for (int shape = 0; shape < kShapes; ++shape) {
    // Short sequences of heads that share no keys have a backward of their own.
    const bool is_short = shape % 3 == 1;
    const Drawn drawn(random, shape % 4 != 0, is_short ? 128 : shape % 5 == 0 ? 600 : 140, !is_short);
    ASSERT_TRUE(device::serves_kernel_heads(drawn.qkv, drawn.setup)) << drawn.what;
    const BelowAutograd below;
    HeadsSetup exact = drawn.setup;
    exact.options.rotary = {wide(exact.options.rotary.cos), wide(exact.options.rotary.sin)};
    const auto expected = plain_heads_forward(wide(drawn.qkv), exact);
    const auto gradient = plain_heads_backward(wide(drawn.qkv), expected, wide(drawn.d_out), exact);
    // By the products that this card has, and by those that every card has.
    for (const bool warps_alone : {false, true}) {
      const auto name = drawn.what + (warps_alone ? ", warps alone" : "");
      const auto out = twice(
          [&] {
            const auto output = device::kernel_heads_forward(drawn.qkv, drawn.setup, warps_alone);
            return std::vector<at::Tensor>{
                output.out, output.lse,
                device::kernel_heads_backward(drawn.qkv, output, drawn.d_out, drawn.setup, warps_alone)};
          },
          name);
      expect_near(out[0], expected.out, 2 * bound(drawn.dtype), name);
      expect_near(out[1], expected.lse, 1e-3, name);
      expect_near(out[2], gradient, 4 * bound(drawn.dtype), name);
    }
  }
  if (kShapes < 6) return;  // too few for all of them
  for (const char* const name :
       {"attention_forward", "attention_delta", "attention_backward", "attention_backward_short"}) {
    EXPECT_GT(cuda::KernelLibrary::of_process().num_launches(name), 0U) << name;
  }
}

// Blocks of queries and keys of rows that are cut into pieces, as ranks of cp have them: before, at and behind each
// other.
void expect_blocks(Drawn& drawn, std::int64_t rows, const std::vector<std::int64_t>& pieces) {
  AttentionOptions& options = drawn.setup.options;
  options.rotary = {};
  const std::int64_t all = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
  const at::ScalarType dtype = drawn.dtype;
  const std::int64_t width = options.heads * options.head_size, kv_width = options.kv_heads * options.head_size;
  if (options.key_mask.defined()) options.key_mask = at::rand({rows, all}, on_card(at::kFloat)).lt(0.7);
  const HeadsMatrices heads = split_heads(values({rows * all, width + 2 * kv_width}, dtype), options);
  const at::Tensor d_out = values({rows * all, width}, dtype);
  std::vector<HeadsBlock> blocks;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t query = 0;
    for (const std::int64_t queries : pieces) {
      std::int64_t key = 0;
      for (const std::int64_t keys : pieces) {
        if (!options.causal || key <= query) {
          blocks.push_back({row, row * all + query, queries, row * all + key, keys, query, key});
        }
        key += keys;
      }
      query += queries;
    }
  }
  const BelowAutograd below;
  ASSERT_TRUE(device::serves_blocks(heads, drawn.setup)) << drawn.what;
  HeadsSums sums = empty_sums(heads.q, options);
  EXPECT_TRUE(device::kernel_blocks_forward(heads, blocks, drawn.setup, sums).empty()) << drawn.what;
  const HeadsMatrices exact = {wide(heads.q), wide(heads.k), wide(heads.v)};
  const HeadsSums expected = empty_sums(exact.q, options);
  plain_blocks_forward(exact, blocks, drawn.setup, expected);
  expect_near(sums.out, expected.out, 2 * bound(dtype), drawn.what);
  EXPECT_TRUE(at::equal(sums.lse.isneginf(), expected.lse.isneginf())) << drawn.what;
  expect_near(sums.lse.masked_fill(sums.lse.isneginf(), 0), expected.lse.masked_fill(expected.lse.isneginf(), 0), 1e-3,
              drawn.what);
  const at::Tensor delta = blocks_delta(expected.out, wide(d_out), options.heads);
  const auto gradients = [&](at::ScalarType type) {
    const at::Tensor whole = at::zeros({rows * all, width + 2 * kv_width}, on_card(type));
    return std::pair(whole, split_heads(whole, options));
  };
  const auto [found, into] = gradients(at::kFloat);
  const AttendedQueries queries = {sums.out.to(dtype), sums.lse, delta.to(at::kFloat), d_out};
  EXPECT_TRUE(device::kernel_blocks_backward(heads, blocks, drawn.setup, queries, into).empty()) << drawn.what;
  const auto [wanted, exact_into] = gradients(at::kDouble);
  plain_blocks_backward(exact, blocks, drawn.setup, {expected.out, expected.lse, delta, wide(d_out)}, exact_into);
  expect_near(found, wanted, 4 * bound(dtype), drawn.what);
}

TEST(DeviceAttention, OfBlocks) {
  Random random(63);
  for (int shape = 0; shape < (kShapes + 1) / 2; ++shape) {
    Drawn drawn(random, false, 90);
    expect_blocks(drawn, 2, {random.between(1, 150), random.between(1, 150), random.between(1, 90)});
  }
}

// Which a card's libraries compute where they lie.
TEST(DeviceAttention, OfLongBlocks) {
  Random random(64);
  for (int shape = 0; shape < (kShapes + 9) / 10; ++shape) {
    Drawn drawn(random, false, 1);
    drawn.setup.options.key_mask = at::Tensor();
    drawn.setup.repeatable = shape % 2 == 0;
    expect_blocks(drawn, 1, {random.between(512, 600), random.between(512, 600)});
  }
}

TEST(DeviceAttention, DropsWhatTheCpuDrops) {
  Random random(62);
  for (int shape = 0; shape < 500 && shape < 3 * kShapes; ++shape) {
    Drawn drawn(random, true, 200);
    drawn.setup.options.causal = false;  // then every bit is drawn
    const BelowAutograd below;
    const bool warps_alone = shape % 2 == 1;
    const auto kept = device::kernel_heads_forward(drawn.qkv, drawn.setup, warps_alone).kept.cpu().view(at::kByte);
    const auto bits = kept.unsqueeze(-1)
                          .bitwise_right_shift(at::arange(8, at::kByte))
                          .bitwise_and(1)
                          .flatten(3)
                          .slice(3, 0, drawn.sequence);
    for (std::int64_t row = 0; row < drawn.rows; ++row) {
      // A head is a row of the site's stream, 4096 of them to a row of the batch.
      Pass head = drawn.pass;
      head.first_row = (drawn.pass.first_row + row) * kMaxHeads + drawn.setup.options.first_head;
      const auto factors = dropout_factors(head, drawn.setup.options.site, drawn.setup.options.dropout,
                                           {drawn.setup.options.heads, drawn.sequence, drawn.sequence}, at::kFloat);
      ASSERT_TRUE(at::equal(bits[row], factors.ne(0).to(at::kByte))) << drawn.what << ", row " << row;
    }
  }
}

}  // namespace orthant::nn::device_attention_test
