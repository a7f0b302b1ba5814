// Unpadded rows on a CUDA device: see device_case.h and Note [Unpadded rows]. Each row has what it has alone.
#include "ops/device_case.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/dropout/dropout_device.h"
#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::nn::device_unpadded_test {

using namespace device_case;

// Rows of these lengths, then tokens of none.
struct Rows {
  std::vector<std::int64_t> lengths;
  std::int64_t tokens = 0;
  TokenRows on_host, on_device;

  Rows(Random& random, std::int64_t most_rows, std::int64_t longest) {
    const std::int64_t rows = random.between(1, most_rows), behind = random.between(0, 2) * random.between(1, 150);
    std::vector<std::int64_t> row, position, firsts;
    const auto add = [&](std::int64_t number, std::int64_t length) {
      firsts.push_back(static_cast<std::int64_t>(row.size()));
      for (std::int64_t i = 0; i < length; ++i) {
        row.push_back(number);
        position.push_back(i);
      }
    };
    for (std::int64_t r = 0; r < rows; ++r) {
      lengths.push_back(random.between(0, 3) == 0 ? random.between(1, std::min<std::int64_t>(longest, 3))
                                                  : random.between(1, longest));
      add(r, lengths.back());
    }
    add(rows, behind);
    tokens = static_cast<std::int64_t>(row.size());
    on_host.row = at::tensor(row, at::kLong).unsqueeze(0);
    on_host.position = at::tensor(position, at::kLong).unsqueeze(0);
    on_host.firsts = at::tensor(firsts, at::kLong);
    on_host.longest = random.between(0, 1) == 0 ? *std::ranges::max_element(lengths) : longest;
    on_device = {on_host.row.to(test::card()),
                 on_host.position.to(test::card()),
                 {},
                 {},
                 on_host.firsts.to(test::card()),
                 on_host.longest};
  }
  std::int64_t first(std::size_t row) const {
    return on_host.firsts[static_cast<std::int64_t>(row)].item<std::int64_t>();
  }
};

TEST(DeviceUnpadded, TokensDropWhatTheCpuDrops) {
  Random random(91);
  for (int shape = 0; shape < std::min(kShapes, 60); ++shape) {
    const auto dtype = random.dtype();
    const Rows rows(random, 9, 70);
    const auto width = random.width(400), first = random.between(0, rows.tokens - 1),
               count = random.between(1, rows.tokens - first);
    const auto what = fmt::format("{} tokens of {} channels from {} on, {}", count, width, first, c10::toString(dtype));
    DropoutGrid grid = random_grid(random, count, width);
    grid.draw.threshold = std::min(grid.draw.threshold, 1U << 15);
    grid.first_token = static_cast<std::uint64_t>(first);
    DropoutGrid on_host = grid;
    grid.token_rows = &rows.on_device;
    on_host.token_rows = &rows.on_host;
    const auto x = values({count, width}, dtype), gy = values({count, width}, dtype);
    const auto weight = values({width}, dtype), bias = values({width}, dtype);
    ASSERT_TRUE(device::serves_dropout(x) && device::serves_activation(ActivationKind::relu, x) &&
                device::serves_layer_norm(x))
        << what;
    const auto out = twice(
        [&] {
          const auto sum = at::empty_like(x), d = gy.clone();
          const auto y = device::dropout_add_norm(sum, x, gy, &grid, weight, bias, 1e-5);
          const auto back = device::layer_norm_backward(gy, {sum, y.statistics, weight}, {true, true}, &grid, {});
          const auto relu = device::activation_gradient(ActivationKind::relu, x, d, true, &grid);
          return std::vector<at::Tensor>{
              device::dropout_add(&grid, at::ones_like(x), {}), sum,      back.x,         back.dropped,
              device::activate(ActivationKind::relu, x, &grid), relu.d_x, relu.activation};
        },
        what);
    const BelowAutograd below;
    const auto factors = plain_dropout_factors(on_host, count, width, at::kFloat).to(dtype);
    EXPECT_TRUE(at::equal(out[0].cpu(), factors)) << what;
    // Of the kernels' dropout the others are made.
    const auto dropped = [&](const at::Tensor& of) { return device::dropout_add(&grid, of.contiguous(), {}); };
    EXPECT_TRUE(at::equal(out[1], gy + dropped(x))) << what;
    EXPECT_TRUE(at::equal(out[3], dropped(out[2]))) << what;
    EXPECT_TRUE(at::equal(out[4], dropped(x.relu()))) << what;
    EXPECT_TRUE(at::equal(out[5], dropped(gy).masked_fill(x.le(0), 0))) << what;
    EXPECT_TRUE(at::equal(out[6], out[4])) << what;
  }
}

// A case of attention of rows side by side, and what each row is alone.
struct Drawn {
  AttentionOptions options;
  Pass pass;
  at::ScalarType dtype;
  Rows rows;
  at::Tensor qkv, d_out;
  std::string what;

  Drawn(Random& random, std::int64_t longest)
      : dtype(random.between(0, 1) == 0 ? at::kBFloat16 : at::kHalf), rows(random, 5, longest) {
    const std::int64_t sizes[] = {32, 64, 64, 128};
    options.head_size = sizes[random.between(0, 3)];
    options.kv_heads = random.between(1, 2);
    options.heads = options.kv_heads * (random.between(0, 1) == 0 ? 1 : 2);
    options.causal = random.between(0, 1) == 0;
    options.first_head = random.between(0, 9);
    options.site = "layers.3.attention";
    options.dropout = random.between(0, 3) == 0 ? 0 : 0.1 * static_cast<double>(random.between(1, 6));
    pass.seed = static_cast<std::uint64_t>(random.between(0, 1 << 30));
    pass.step = random.between(0, 5000);
    pass.first_row = random.between(0, 10000);
    if (random.between(0, 1) == 0) options.key_mask = at::rand({1, rows.tokens}, on_card(at::kFloat)).lt(0.7);
    options.document_starts = at::zeros({1, rows.tokens}, on_card(at::kLong));  // which kernels do not read
    options.document_rows = rows.on_device.row;
    options.positions = rows.on_device.position;
    options.unpadded = {rows.on_device.firsts, rows.on_device.longest};
    if (random.between(0, 2) == 0) {
      const auto angles = at::rand({std::max(longest, rows.tokens), options.head_size / 2}, on_card(at::kFloat)) * 7;
      options.rotary = {angles.cos(), angles.sin()};
    }
    qkv = values({1, rows.tokens, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
    d_out = values({1, rows.tokens, options.heads * options.head_size}, dtype);
    what = fmt::format(
        "rows of {} of at most {}, then {} in all, {} heads from {}, {} kv, size {}, causal {}, masked "
        "{}, dropout {}, {}",
        testing::PrintToString(rows.lengths), rows.on_host.longest, rows.tokens, options.heads, options.first_head,
        options.kv_heads, options.head_size, options.causal, options.key_mask.defined(), options.dropout,
        c10::toString(dtype));
  }

  // Of row r alone, from `x` [1, tokens, ...].
  at::Tensor of_row(const at::Tensor& x, std::size_t r) const {
    return x.narrow(1, rows.first(r), rows.lengths[r]).contiguous();
  }
  HeadsSetup setup_of_row(std::size_t r) const {
    AttentionOptions alone = options;
    alone.document_starts = alone.document_rows = alone.positions = at::Tensor();
    alone.unpadded = {};
    if (alone.key_mask.defined()) alone.key_mask = of_row(alone.key_mask, r);
    Pass of = pass;
    of.first_row += static_cast<std::int64_t>(r);
    return heads_setup(of_row(qkv, r), alone, of);
  }
};

TEST(DeviceUnpadded, AttentionOfRowsSideBySideIsThatOfEachRow) {
  Random random(92);
  for (int shape = 0; shape < std::min(kShapes, 100); ++shape) {
    const Drawn drawn(random, shape % 3 == 1 ? 128 : shape % 4 == 0 ? 600 : 200);
    const HeadsSetup setup = heads_setup(drawn.qkv, drawn.options, drawn.pass);
    ASSERT_TRUE(device::serves_heads(drawn.qkv, setup)) << drawn.what;
    const bool warps_alone = shape % 2 == 1;
    const auto out = twice(
        [&] {
          const auto output = device::kernel_heads_forward(drawn.qkv, setup, warps_alone);
          return std::vector<at::Tensor>{
              output.out, output.lse,
              device::kernel_heads_backward(drawn.qkv, output, drawn.d_out, setup, warps_alone)};
        },
        drawn.what);
    const BelowAutograd below;
    for (std::size_t r = 0; r < drawn.rows.lengths.size(); ++r) {
      const auto what = fmt::format("row {} of {}", r, drawn.what);
      HeadsSetup alone = drawn.setup_of_row(r);
      alone.options.rotary = {wide(alone.options.rotary.cos), wide(alone.options.rotary.sin)};
      const auto qkv = wide(drawn.of_row(drawn.qkv, r)), d_out = wide(drawn.of_row(drawn.d_out, r));
      const auto expected = plain_heads_forward(qkv, alone);
      expect_near(drawn.of_row(out[0], r), expected.out, 2 * bound(drawn.dtype), what);
      expect_near(out[1].narrow(2, drawn.rows.first(r), drawn.rows.lengths[r]), expected.lse, 1e-3, what);
      expect_near(drawn.of_row(out[2], r), plain_heads_backward(qkv, expected, d_out, alone), 4 * bound(drawn.dtype),
                  what);
    }
    const std::int64_t end = drawn.rows.first(drawn.rows.lengths.size());
    for (const auto& behind : {out[0].slice(1, end), out[1].slice(2, end), out[2].slice(1, end)}) {
      EXPECT_TRUE(behind.eq(0).all().item<bool>()) << "tokens of no row of " << drawn.what;
    }
  }
}

// With the bits of probabilities that stay, whatever lies before the row.
TEST(DeviceUnpadded, ForwardHasTheBitsOfEachRow) {
  Random random(93);
  for (int shape = 0; shape < std::min(kShapes, 60); ++shape) {
    const Drawn drawn(random, 300);
    const BelowAutograd below;
    const auto output = device::kernel_heads_forward(drawn.qkv, heads_setup(drawn.qkv, drawn.options, drawn.pass));
    for (std::size_t r = 0; r < drawn.rows.lengths.size(); ++r) {
      const auto alone = device::kernel_heads_forward(drawn.of_row(drawn.qkv, r), drawn.setup_of_row(r));
      EXPECT_TRUE(at::equal(drawn.of_row(output.out, r), alone.out)) << "row " << r << " of " << drawn.what;
      if (!alone.kept.defined()) continue;
      const auto kept =
          output.kept.narrow(2, drawn.rows.first(r), drawn.rows.lengths[r]).slice(3, 0, alone.kept.size(3));
      const auto bits = [&](const at::Tensor& words) {
        return words.contiguous()
            .cpu()
            .view(at::kByte)
            .unsqueeze(-1)
            .bitwise_right_shift(at::arange(8, at::kByte))
            .bitwise_and(1)
            .flatten(3);
      };
      const std::int64_t sees = drawn.options.causal ? 1 : drawn.rows.lengths[r];  // of tiles beyond nothing is drawn
      EXPECT_TRUE(at::equal(bits(kept).slice(3, 0, sees), bits(alone.kept).slice(3, 0, sees))) << drawn.what;
    }
  }
}

}  // namespace orthant::nn::device_unpadded_test
