// Dropout and activations of a CUDA device against the CPU's draw and the plain formulas in float64: see device_case.h.
#include "ops/device_case.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/dropout/dropout_device.h"

namespace orthant::nn::device_activation_test {

using namespace device_case;

// The CPU's factors [tokens, width], on the card.
at::Tensor factors_of(const DropoutGrid& grid, std::int64_t tokens, std::int64_t width, at::ScalarType dtype) {
  return apply_dropout(grid, at::ones({tokens, width}, at::kDouble)).to(on_card(dtype));
}

TEST(DeviceActivation, DropoutDrawsAsTheCpuDoes) {
  Random random(21);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto tokens = random.rows(), width = random.width(1500);
    const auto grid = random_grid(random, tokens, width);
    const auto what = fmt::format("dropout of {} tokens from {}, {} channels from {}, {}", tokens, grid.first_token,
                                  width, grid.first_channel, c10::toString(dtype));
    const auto x = values({tokens, width}, dtype), residual = values({tokens, width}, dtype);
    const auto ones = at::ones({tokens, width}, on_card(at::kFloat));
    ASSERT_TRUE(device::serves_dropout(x)) << what;
    const auto out = twice(
        [&] {
          return std::vector<at::Tensor>{device::dropout_add(&grid, ones, {}), apply_dropout(grid, x),
                                         device::dropout_add(&grid, x, residual)};
        },
        what);
    const BelowAutograd below;
    const auto factors = factors_of(grid, tokens, width, at::kFloat);
    EXPECT_TRUE(at::equal(out[0], factors)) << what;
    const auto dropped = (x * factors).to(dtype);
    EXPECT_TRUE(at::equal(out[1], dropped)) << what;
    EXPECT_TRUE(at::equal(out[2], residual + dropped)) << what;
  }
}

TEST(DeviceActivation, SwiGlu) {
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

constexpr ActivationKind kPointwise[] = {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu,
                                         ActivationKind::silu};
constexpr const char* kNames[] = {"gelu", "gelu_tanh", "relu", "silu"};

TEST(DeviceActivation, Pointwise) {
  Random random(22);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto kind = kPointwise[shape % 4];
    const auto dtype = random.dtype();
    const auto rows = random.rows(), width = random.width(2000);
    const auto what = fmt::format("{} {} rows of {}, {}", kNames[shape % 4], rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype) * 3, d = values({rows, width}, dtype);
    ASSERT_TRUE(device::serves_activation(kind, x)) << what;
    const auto out = twice(
        [&] {
          const auto gradient = device::activation_gradient(kind, x, d.clone(), true);
          const auto alone = device::activation_gradient(kind, x, d.clone(), false);
          return std::vector<at::Tensor>{device::activate(kind, x), gradient.d_x, gradient.activation, alone.d_x};
        },
        what);
    const auto expected = plain_activation_gradient(kind, wide(x), wide(d), true);
    expect_near(out[0], expected.activation, bound(dtype), what);
    expect_near(out[1], expected.d_x, bound(dtype), what);
    EXPECT_TRUE(at::equal(out[2], out[0])) << what;
    EXPECT_TRUE(at::equal(out[3], out[1])) << what;
  }
}

// One pass has the bits of an activation and a dropout, forward and back.
TEST(DeviceActivation, DropoutInTheSamePassHasTheBitsOfItsParts) {
  Random random(23);
  for (int shape = 0; shape < kShapes; ++shape) {
    const bool gated = shape % 5 == 4;
    const auto kind = gated ? ActivationKind::swiglu : kPointwise[shape % 5];
    const auto dtype = random.dtype();
    const auto rows = random.rows(), width = random.width(1200);
    const auto what =
        fmt::format("kind {} with dropout, {} rows of {}, {}", shape % 5, rows, width, c10::toString(dtype));
    const auto x = values({rows, gated ? 2 * width : width}, dtype) * 3, d = values({rows, width}, dtype);
    const auto grid = random_grid(random, rows, width);
    const auto out = twice(
        [&] {
          const auto gradient = device::activation_gradient(kind, x, d.clone(), true, &grid);
          return std::vector<at::Tensor>{device::activate(kind, x, &grid), gradient.d_x, gradient.activation};
        },
        what);
    const BelowAutograd below;
    const auto dropped = apply_dropout(grid, device::activate(kind, x));
    EXPECT_TRUE(at::equal(out[0], dropped)) << what;
    EXPECT_TRUE(at::equal(out[1], device::activation_gradient(kind, x, apply_dropout(grid, d), false).d_x)) << what;
    EXPECT_TRUE(at::equal(out[2], dropped)) << what;
  }
}

TEST(DeviceActivation, KeepsItsTails) {
  const BelowAutograd below;
  const auto x = at::linspace(-12, 12, 2401, on_card(at::kDouble)).view({1, -1});
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const auto narrow = x.to(dtype);
    for (std::size_t k = 0; k < 4; ++k) {
      const auto ones = at::ones_like(narrow);
      const auto got = device::activation_gradient(kPointwise[k], narrow, ones, true);
      const auto expected = plain_activation_gradient(kPointwise[k], wide(narrow), at::ones_like(x), true);
      const double room = dtype == at::kBFloat16 ? 1.0 / 256 : dtype == at::kHalf ? 1.0 / 2048 : 2e-6;
      // Relative to each element, but for what is next to nothing.
      const auto within = [&](const at::Tensor& a, const at::Tensor& b) {
        return ((wide(a) - b).abs() <= b.abs() * room + 1e-6).all().item<bool>();
      };
      EXPECT_TRUE(within(got.activation, expected.activation)) << kNames[k] << " " << c10::toString(dtype);
      EXPECT_TRUE(within(got.d_x, expected.d_x)) << kNames[k] << " " << c10::toString(dtype);
    }
  }
}

}  // namespace orthant::nn::device_activation_test
