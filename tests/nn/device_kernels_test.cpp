// Every kernel of a CUDA device against the plain formulas in float64, on random shapes: ragged rows, one row, one
// token, none. Outputs lie in memory that held NaN before, and a second run must have the same bits.
#include "orthant/nn/device_kernels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>

#include "orthant/nn/activation.h"
#include "orthant/nn/attention_heads.h"
#include "orthant/nn/columns.h"
#include "orthant/nn/cross_entropy.h"
#include "orthant/nn/device_variants.h"
#include "orthant/nn/embedding_table.h"
#include "orthant/nn/finite_device.h"
#include "orthant/nn/norm_formulas.h"
#include "orthant/nn/projection.h"

namespace orthant::nn::device_kernels_test {

// ORTHANT_SHAPES: fewer for a sanitizer, which takes its time.
const int kShapes = std::getenv("ORTHANT_SHAPES") == nullptr ? 200 : std::atoi(std::getenv("ORTHANT_SHAPES"));

struct Random {
  std::mt19937_64 engine;
  explicit Random(std::uint64_t seed) : engine(seed) { at::manual_seed(seed); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
  // One in four is a multiple of 8, the others anything.
  std::int64_t width(std::int64_t most) { return between(0, 1) == 0 ? between(1, most) : 8 * between(1, most / 8); }
  std::int64_t rows() { return between(0, 9) == 0 ? between(0, 1) : between(1, 300); }
  at::ScalarType dtype() {
    const at::ScalarType all[] = {at::kBFloat16, at::kHalf, at::kFloat};
    return all[between(0, 2)];
  }
};

at::TensorOptions on_card(at::ScalarType dtype) {
  return at::TensorOptions().device(at::kCUDA).dtype(dtype);
}

at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, on_card(at::kFloat)).to(dtype);
}

// Bits of rounding once to the dtype, with some room for the order of sums.
double bound(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 1.0 / 128 : dtype == at::kHalf ? 1.0 / 1024 : 2e-5;
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, double factor, const std::string& what) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (got.numel() == 0) return;
  const auto wide = got.to(at::kDouble);
  ASSERT_TRUE(wide.isfinite().all().item<bool>()) << what;
  const double error = (wide - wanted).abs().max().item<double>();
  const double size = std::max(wanted.abs().max().item<double>(), 1e-3);
  EXPECT_LE(error, factor * size) << what;
}

// Memory that the caching allocator hands out next holds NaN.
void poison() {
  std::vector<at::Tensor> blocks;
  for (const std::int64_t size : {1 << 9, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24}) {
    for (int i = 0; i < 6; ++i) {
      blocks.push_back(at::full({size / 4}, std::numeric_limits<float>::quiet_NaN(), on_card(at::kFloat)));
    }
  }
}

// Runs `make` twice on poisoned memory; both must agree to the bit.
std::vector<at::Tensor> twice(const std::function<std::vector<at::Tensor>()>& make, const std::string& what) {
  const BelowAutograd below;
  poison();
  const auto first = make();
  std::vector<at::Tensor> kept;
  for (const auto& tensor : first) kept.push_back(tensor.defined() ? tensor.clone() : tensor);
  poison();
  const auto second = make();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].defined()) EXPECT_TRUE(at::equal(kept[i], second[i])) << what << ", output " << i << " differs in bits";
  }
  return kept;
}

at::Tensor wide(const at::Tensor& x) {
  return x.defined() ? x.to(at::kDouble) : x;
}

// All at once: one after the other they take half a minute.
void prepare_norms() {
  device::Variants all;
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (std::int64_t width = 64; width <= 8192; width *= 2) {
      for (auto variant : device::norm_variants(dtype, width)) {
        for (const int aligned : {0, 1}) {
          for (const int parts : {1, 2, 3}) {
            variant.values[1] = aligned;
            variant.values[4] = parts;
            all.push_back(variant);
          }
        }
      }
    }
  }
  at::empty({1}, on_card(at::kFloat));
  cuda::KernelLibrary::of_process().prepare(all);
}

TEST(DeviceKernels, RmsNorm) {
  prepare_norms();
  Random random(1);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = random.rows(), width = random.width(shape % 20 == 0 ? 8192 : 1500);
    const auto what = fmt::format("rms_norm {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype), weight = values({width}, dtype), gy = values({rows, width}, dtype);
    const auto residual = values({rows, width}, dtype);
    ASSERT_TRUE(device::serves_norm(Norm::rms, x)) << what;
    const auto out = twice(
        [&] {
          const auto y = device::rms_norm(x, weight, 1e-5);
          return std::vector<at::Tensor>{y.y, y.statistics};
        },
        what);
    const auto expected = plain::norm(Norm::rms, wide(x), wide(weight), {}, 1e-5);
    expect_near(out[0], expected.y, bound(dtype), what);
    expect_near(out[1], expected.statistics, 2e-5, what);
    const NormInput input{x, out[1], weight};
    const auto gradients = twice(
        [&] {
          const auto all = device::rms_norm_backward(gy, input, {true, true});
          const auto sum = device::rms_norm_backward(gy, input, {true, true}, residual);
          const auto inputs = device::rms_norm_backward(gy, input, {true, false});
          const auto weights = device::rms_norm_backward(gy, input, {false, true});
          return std::vector<at::Tensor>{all.x, all.weight, inputs.x, weights.weight, sum.x, sum.weight};
        },
        what);
    const auto d =
        plain::norm_backward(Norm::rms, wide(gy), {wide(x), expected.statistics, wide(weight)}, {true, true});
    expect_near(gradients[0], d.x, 2 * bound(dtype), what);
    expect_near(gradients[1], d.weight, 5e-5, what);
    // Parts, and the residual added in the same pass, have the bits of separate passes.
    EXPECT_TRUE(at::equal(gradients[0], gradients[2])) << what;
    EXPECT_TRUE(at::equal(gradients[1], gradients[3])) << what;
    EXPECT_TRUE(at::equal(gradients[4], residual + gradients[0])) << what;
    EXPECT_TRUE(at::equal(gradients[5], gradients[1])) << what;
  }
}

TEST(DeviceKernels, SumOfColumns) {
  Random random(7);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = random.between(0, 1000), width = random.width(3000);
    const auto what = fmt::format("sum of {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype);
    const auto out = twice([&] { return std::vector<at::Tensor>{device::sum_columns(x)}; }, what);
    expect_near(out[0], wide(x).sum(0), 1e-5, what);
  }
}

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

TEST(DeviceKernels, SwiGlu) {
  Random random(2);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = random.rows(), width = random.width(2000);
    const auto what = fmt::format("swiglu {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, 2 * width}, dtype) * 3, d = values({rows, width}, dtype);
    const auto out = twice(
        [&] {
          const auto gradient = device::activation_gradient(ActivationKind::swiglu, x, d.clone(), true);
          const auto alone = device::activation_gradient(ActivationKind::swiglu, x, d.clone(), false);
          return std::vector<at::Tensor>{device::activate(ActivationKind::swiglu, x), gradient.d_x, gradient.activation,
                                         alone.d_x};
        },
        what);
    const auto expected = plain_activation_gradient(ActivationKind::swiglu, wide(x), wide(d), true);
    expect_near(out[0], expected.activation, bound(dtype), what);
    expect_near(out[1], expected.d_x, bound(dtype), what);
    EXPECT_TRUE(at::equal(out[2], out[0])) << what;
    EXPECT_TRUE(at::equal(out[3], out[1])) << what;
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
    options.rotary = {angles.cos(), angles.sin()};
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
          const auto own = logits.clone();
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

TEST(DeviceKernels, AttentionHeads) {
  Random random(6);
  for (int shape = 0; shape < std::min(kShapes, 60); ++shape) {
    const auto dtype = random.between(0, 1) == 0 ? at::kBFloat16 : at::kHalf;
    HeadsSetup setup;
    auto& options = setup.options;
    options.kv_heads = random.between(1, 3);
    options.heads = options.kv_heads * random.between(1, 4);
    options.head_size = 8 * random.between(1, 16);
    options.causal = random.between(0, 1) == 0;
    const auto rows = random.between(1, 3), sequence = random.between(1, shape % 6 == 0 ? 700 : 140);
    const auto what =
        fmt::format("attention {} x {}, {} heads, {} kv, size {}, causal {}, {}", rows, sequence, options.heads,
                    options.kv_heads, options.head_size, options.causal, c10::toString(dtype));
    if (options.head_size % 2 == 0) {
      const auto angles = at::rand({sequence, options.head_size / 2}, on_card(at::kFloat)) * 7;
      options.rotary = {angles.cos(), angles.sin()};
    }
    const auto qkv = values({rows, sequence, (options.heads + 2 * options.kv_heads) * options.head_size}, dtype);
    const auto d_out = values({rows, sequence, options.heads * options.head_size}, dtype);
    ASSERT_TRUE(device::serves_heads(qkv, setup)) << what;
    const auto run = [&] {
      const auto output = device::heads_forward(qkv, setup);
      return std::vector<at::Tensor>{output.out, output.lse, device::heads_backward(qkv, output, d_out, setup)};
    };
    setup.repeatable = true;
    const auto out = twice(run, what);
    setup.repeatable = false;
    const BelowAutograd below;
    const auto fastest = run();
    HeadsSetup exact = setup;
    exact.options.rotary = {wide(options.rotary.cos), wide(options.rotary.sin)};
    const auto expected = plain_heads_forward(wide(qkv), exact);
    const auto gradient = plain_heads_backward(wide(qkv), expected, wide(d_out), exact);
    expect_near(out[0], expected.out, 2 * bound(dtype), what);
    expect_near(out[1], expected.lse, 1e-3, what);
    expect_near(out[2], gradient, 4 * bound(dtype), what);
    expect_near(fastest[2], gradient, 4 * bound(dtype), what);
  }
}

}  // namespace orthant::nn::device_kernels_test
