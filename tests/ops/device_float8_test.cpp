// Kernels that round matrices to e4m3, against the formulas: bits are equal. See device_case.h.
#include <limits>

#include "ops/device_case.h"
#include "orthant/ops/linear/float8.h"

namespace orthant::nn::device_float8_test {

using namespace device_case;

void expect_equal(const std::vector<at::Tensor>& found, const Float8Matrix& wanted, const std::string& what) {
  EXPECT_TRUE(at::equal(found[0], wanted.values.view(at::kByte))) << what;
  EXPECT_TRUE(at::equal(found[1], wanted.scales.to(at::kFloat))) << what;
}

std::vector<at::Tensor> parts(const Float8Matrix& x) {
  return {x.values.view(at::kByte), x.scales};
}

// Rows of all sizes of numbers, zeros among them.
at::Tensor rows_apart(Random& random, std::int64_t rows, std::int64_t width, at::ScalarType dtype) {
  at::Tensor x = at::randn({rows, width}, on_card(at::kFloat));
  x.mul_(at::pow(2.0, at::randint(-12, 12, {rows, 1}, on_card(at::kFloat))));
  if (rows > 0 && random.between(0, 2) == 0) x[random.between(0, rows - 1)].zero_();
  return x.to(dtype);
}

TEST(DeviceFloat8, RowsHaveTheBitsOfTheFormulas) {
  Random random(31);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const bool is_long = shape % 3 == 0;  // some rows beyond what registers hold
    const auto rows = is_long ? random.between(1, 3) : random.rows();
    const auto width = 16 * random.between(1, is_long ? 2600 : 100);
    const auto what = fmt::format("{} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = rows_apart(random, rows, width, dtype);
    ASSERT_TRUE(device::serves_float8(x)) << what;
    expect_equal(twice([&] { return parts(device::round_float8(x)); }, what), plain::round_float8(x), what);
  }
}

TEST(DeviceFloat8, ColumnsHaveTheBitsOfTheFormulas) {
  Random random(32);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = 16 * random.between(1, shape % 3 == 0 ? 300 : 12), width = 16 * random.between(1, 20);
    const auto what = fmt::format("{} rows of {} turned, {}", rows, width, c10::toString(dtype));
    const auto x = rows_apart(random, width, rows, dtype).t().contiguous();
    ASSERT_TRUE(device::serves_float8_turned(x)) << what;
    expect_equal(twice([&] { return parts(device::round_float8_turned(x)); }, what), plain::round_float8(x.t()), what);
  }
}

TEST(DeviceFloat8, ARowThatIsNotFiniteIsScaledByNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    at::Tensor x = values({3, 64}, at::kBFloat16);
    x[1][5] = bad;
    const at::Tensor turned = device::round_float8_turned(x.t().repeat({1, 16})).scales;
    for (const auto& scales : {device::round_float8(x).scales, turned}) {
      EXPECT_TRUE(scales[1].isnan().item<bool>());
      EXPECT_TRUE(scales[0].isfinite().item<bool>() && scales[2].isfinite().item<bool>());
    }
  }
  at::Tensor x = values({1, 64}, at::kBFloat16);
  x[0][9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(device::round_float8(x).values[0][9].to(at::kFloat).isnan().item<bool>());
}

// What cards are not asked for takes the formulas.
TEST(DeviceFloat8, LeavesOtherRowsToTheFormulas) {
  EXPECT_FALSE(device::serves_float8(values({4, 24}, at::kBFloat16)));
  EXPECT_FALSE(device::serves_float8_turned(values({24, 32}, at::kBFloat16)));
  EXPECT_TRUE(device::serves_float8(values({4, 32}, at::kBFloat16)));
}

}  // namespace orthant::nn::device_float8_test
