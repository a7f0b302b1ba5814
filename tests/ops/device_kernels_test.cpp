// Kernels of a CUDA device against the plain formulas in float64: see device_case.h.
#include "orthant/nn/device_kernels.h"

#include <cmath>

#include "ops/device_case.h"
#include "orthant/nn/finite_device.h"
#include "orthant/ops/attention/attention_heads.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"
#include "orthant/ops/cross_entropy/head_loss.h"
#include "orthant/ops/embedding/embedding_table.h"

namespace orthant::nn::device_kernels_test {

using namespace device_case;

TEST(DeviceKernels, FindsWhatIsNotFinite) {
  Random random(8);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto size = random.between(1, shape % 20 == 0 ? 5000000 : 3000), begin = random.between(0, 8);
    const auto x = values({size + begin}, dtype).narrow(0, begin, size);
    const auto found = [&] {
      const auto flag = at::zeros({}, on_card(at::kFloat));
      device::find_not_finite(flag, x);
      return !std::isfinite(flag.item<float>());
    };
    EXPECT_FALSE(found()) << size << " from " << begin;
    x[random.between(0, size - 1)] = random.between(0, 1) == 0 ? NAN : -INFINITY;
    EXPECT_TRUE(found()) << size << " from " << begin;
  }
}

TEST(DeviceKernels, Rotary) {
  Random random(3);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    AttentionOptions options;
    options.kv_heads = random.between(1, 4);
    options.heads = options.kv_heads * random.between(1, 3);
    options.head_size = 2 * random.between(1, 70);
    const auto rows = random.between(1, 4), sequence = random.between(1, 70);
    const auto what = fmt::format("rotary {} x {}, {} + 2 x {} heads of {}, {}", rows, sequence, options.heads,
                                  options.kv_heads, options.head_size, c10::toString(dtype));
    const auto angles = at::rand({sequence, options.head_size / 2}, on_card(at::kFloat)) * 7;
    const auto table_dtype = random.between(0, 1) == 0 ? at::kFloat : dtype;
    options.rotary = {angles.cos().to(table_dtype), angles.sin().to(table_dtype)};
    const auto qkv = values({rows, sequence, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
    ASSERT_TRUE(device::serves_rotation(qkv, options)) << what;
    const auto out = twice(
        [&] {
          const auto turned = qkv.clone();
          device::rotate_heads(turned, options);
          return std::vector<at::Tensor>{turned};
        },
        what);
    const auto expected = wide(qkv);
    AttentionOptions wide_options = options;
    wide_options.rotary = {wide(options.rotary.cos), wide(options.rotary.sin)};
    rotate_heads(expected, wide_options);
    expect_near(out[0], expected, bound(dtype), what);
  }
}

TEST(DeviceKernels, EmbeddingRows) {
  Random random(4);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto tokens = random.rows(), width = random.width(1200), entries = random.between(1, 50);
    const bool cut = random.between(0, 2) == 0;
    const std::int64_t first = cut ? random.between(0, 30) : 0;
    const auto what =
        fmt::format("{} tokens of {} entries from {} of {}, {}", tokens, entries, first, width, c10::toString(dtype));
    const std::int64_t all = cut ? first + entries + random.between(0, 20) : entries;
    const auto ids = at::randint(0, all, {tokens}, on_card(at::kLong));
    if (random.between(0, 2) == 0) ids.narrow(0, 0, tokens * 3 / 4).fill_(all / 2);  // as padding is
    const auto table = values({entries, width}, dtype), gy = values({tokens, width}, dtype);
    const TensorCut where{.dim = cut ? 0 : -1, .first = first};
    ASSERT_TRUE(device::serves_lookups({{ids, table, where, all}})) << what;
    const auto gradient = values({entries, width}, at::kFloat);
    const auto out = twice(
        [&] {
          const auto sum = gradient.clone();
          device::add_table_rows({ids, sum, where, all}, gy);
          return std::vector<at::Tensor>{device::sum_table_rows({{ids, table, where, all}}, tokens), sum};
        },
        what);
    expect_near(out[0], plain::sum_table_rows({{ids, wide(table), where, all}}, tokens), 1e-9, what);
    const auto expected = wide(gradient);
    plain::add_table_rows({ids, expected, where, all}, wide(gy));
    expect_near(out[1], expected, 1e-5, what);
  }
}

// Several tables at once have the bits of one sum after the other. An id that no entry has shows in its token alone.
TEST(DeviceKernels, EmbeddingRowsOfSeveralTables) {
  Random random(16);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = random.between(1, 9), sequence = random.between(1, 40), width = random.width(1200);
    const auto what = fmt::format("{} x {} tokens of {}, {}", rows, sequence, width, c10::toString(dtype));
    const auto tokens = rows * sequence, entries = random.between(1, 50);
    std::vector<TableRows> lookups;
    for (const std::int64_t ids : {tokens, sequence, sequence}) {
      lookups.push_back({at::randint(0, entries, {ids}, on_card(at::kLong)), values({entries, width}, dtype)});
    }
    if (shape % 2 == 1) lookups.pop_back();
    ASSERT_TRUE(device::serves_lookups(lookups)) << what;
    const auto sums = [&] { return std::vector<at::Tensor>{device::sum_table_rows(lookups, tokens)}; };
    EXPECT_TRUE(at::equal(twice(sums, what)[0], plain::sum_table_rows(lookups, tokens))) << what;
    const auto bad = random.between(0, tokens - 1);
    lookups[0].ids[bad] = random.between(0, 1) == 0 ? entries : -1;
    const auto lost = sums()[0].isfinite().all(1).logical_not().nonzero();
    ASSERT_EQ(lost.numel(), 1) << what;
    EXPECT_EQ(lost.item<std::int64_t>(), bad) << what;
  }
}

// The same values in rows that begin at borders of 16 bytes.
at::Tensor at_borders(const at::Tensor& x) {
  return device::rows_at_borders(x.size(0), x.size(1), x).copy_(x);
}

TEST(DeviceKernels, CrossEntropy) {
  Random random(5);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto tokens = random.rows(), classes = random.width(shape % 10 == 0 ? 60000 : 3000);
    const auto what = fmt::format("cross entropy {} x {}, {}", tokens, classes, c10::toString(dtype));
    const auto logits = values({tokens, classes}, dtype) * 4;
    auto targets = at::randint(0, classes, {tokens}, on_card(at::kLong));
    if (tokens > 2) targets[1] = -100;
    const auto d_loss = at::full({}, 0.37, on_card(at::kFloat));
    CrossEntropyOptions options;
    options.consume_logits = true;
    const auto out = twice(
        [&] {
          const auto own = shape % 2 == 0 ? logits.clone() : at_borders(logits);
          const auto forward = cross_entropy_forward(own, targets, options);
          return std::vector<at::Tensor>{forward.loss, forward.lse,
                                         cross_entropy_backward(own, targets, forward.lse, d_loss, options)};
        },
        what);
    options.consume_logits = false;
    const auto expected = plain_cross_entropy_forward(wide(logits), targets, options);
    const auto gradient = plain_cross_entropy_backward(wide(logits), targets, expected.lse, wide(d_loss), options);
    expect_near(out[0], expected.loss, 1e-5, what);
    if (tokens > 0) expect_near(out[1], expected.lse, 1e-5, what);
    expect_near(out[2], gradient, bound(dtype), what);
  }
}

// Of classes that fill no vector, in chunks: the rows of logits lie apart.
TEST(DeviceKernels, HeadAndLossOfOddClasses) {
  const BelowAutograd below;
  Random random(15);
  for (const std::int64_t classes : {1, 7, 57, 1003}) {
    const auto dtype = random.dtype();
    const auto what = fmt::format("head and loss of {} classes, {}", classes, c10::toString(dtype));
    const auto x = values({37, 24}, dtype), weight = values({classes, 24}, dtype);
    const auto targets = at::randint(0, classes, {37}, on_card(at::kLong));
    const auto of = [&](at::ScalarType type) {
      Parameter head;
      head.value = weight.to(type);
      head.gradient = at::zeros_like(head.value, at::TensorOptions().dtype(type == at::kDouble ? type : at::kFloat));
      const auto tokens = x.to(type);
      Pass pass;
      HeadLoss joined{&head, nullptr, &pass, {.consume_logits = true}, /*chunk_rows=*/16, {}};
      HeadGradients gradients{.of_x = true, .of_weights = true};
      gradients.d_loss = at::ones({}, on_card(type == at::kDouble ? type : at::kFloat));
      const auto loss = forward_chunks(joined, tokens, targets, nullptr, &gradients);
      return std::vector<at::Tensor>{loss, gradients.x, head.gradient};
    };
    const auto got = of(dtype), wanted = of(at::kDouble);
    expect_near(got[0], wanted[0], bound(dtype), what);
    expect_near(got[1], wanted[1], 4 * bound(dtype), what);
    expect_near(got[2], wanted[2], 4 * bound(dtype), what);
  }
}

TEST(DeviceKernels, CrossEntropyOfInfinitiesAndOddPlaces) {
  const BelowAutograd below;
  const auto infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t classes : {7, 4096, 50257}) {
    auto logits = values({4, classes}, at::kFloat);
    logits.narrow(0, 0, 1).narrow(1, 0, classes - 1).fill_(-infinity);
    logits[1].fill_(std::numeric_limits<float>::quiet_NaN());
    const auto targets = at::zeros({4}, on_card(at::kLong)).add_(classes - 1);
    const auto lse = device::class_numbers(logits, targets, 0).lse.to(at::kDouble);
    const auto expected = at::logsumexp(wide(logits), {1});
    EXPECT_NEAR(lse[0].item<double>(), expected[0].item<double>(), 1e-5);
    EXPECT_TRUE(std::isnan(lse[1].item<double>()));
    // A row that begins between two borders of 16 bytes, and a gradient that does not.
    const auto flat = values({classes + 1}, at::kFloat);
    const auto odd = flat.narrow(0, 1, classes).view({1, classes});
    const CrossEntropyOptions options;
    const auto one = targets.narrow(0, 0, 1);
    const auto forward = cross_entropy_forward(odd, one, options);
    const auto d_loss = at::full({}, 1.0, on_card(at::kFloat));
    const auto gradient = cross_entropy_backward(odd, one, forward.lse, d_loss, options);
    const auto exact = plain_cross_entropy_forward(wide(odd), one, options);
    expect_near(gradient, plain_cross_entropy_backward(wide(odd), one, exact.lse, wide(d_loss), options), 2e-5, "odd");
  }
}

}  // namespace orthant::nn::device_kernels_test
