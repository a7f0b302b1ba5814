// Matrices rounded to e4m3 row by row, and their products, by ATen's functions.
#include "orthant/ops/linear/float8.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "ops/oracle.h"
#include "orthant/ops/linear/projection.h"

namespace orthant::nn {
namespace float8_test {

at::Tensor restored(const Float8Matrix& x) {
  return x.values.to(at::kDouble) * x.scales.to(at::kDouble);
}

// Rows whose largest magnitudes are far apart.
at::Tensor rows_apart(at::ScalarType dtype) {
  const at::Tensor x = random_tensor({40, 48}, 1, at::kDouble);
  return (x * at::pow(2.0, at::arange(-20, 20, at::kDouble)).unsqueeze(1)).to(dtype);
}

TEST(Float8, ARowKeepsFourBitsOfEveryNumber) {
  for (const auto dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor x = rows_apart(dtype);
    const Float8Matrix rounded = round_float8(x);
    EXPECT_EQ(rounded.values.scalar_type(), at::kFloat8_e4m3fn);
    const at::Tensor wide = x.to(at::kDouble), largest = wide.abs().amax(1, true);
    const at::Tensor error = (restored(rounded) - wide).abs();
    // Half of the last of four bits, and of numbers below e4m3's normal ones half of the least.
    EXPECT_TRUE((error <= wide.abs() / 16 + largest * std::exp2(-18)).all().item<bool>()) << c10::toString(dtype);
    const at::Tensor most = rounded.values.to(at::kDouble).abs().amax(1);
    EXPECT_TRUE((most >= 224).all().item<bool>() && (most <= 448).all().item<bool>());
    const at::Tensor powers = rounded.scales.to(at::kDouble).log2();
    EXPECT_TRUE(at::equal(powers, powers.round()));
  }
}

TEST(Float8, TheLargestIsMetExactlyAtBorders) {
  // 1.75 * 2^n becomes 448; the next number above it takes another power.
  const at::Tensor x = at::tensor({1.75, 1.7578125, 0.0, 448.0, 450.0}, at::kDouble).to(at::kBFloat16).unsqueeze(1);
  const Float8Matrix rounded = round_float8(x.contiguous());
  EXPECT_TRUE(at::equal(rounded.values.to(at::kFloat).flatten(), at::tensor({448.0F, 224.0F, 0.0F, 448.0F, 224.0F})));
  EXPECT_EQ(rounded.scales[0].item<float>(), std::exp2(-8.0F));
  EXPECT_EQ(rounded.scales[4].item<float>(), 2.0F);
}

// What tp cuts: the parts of a row have largest numbers of their own.
TEST(Float8, PartsOfARowAreRoundedAsTheWholeRow) {
  const at::Tensor x = random_tensor({64, 256}, 3, at::kFloat);
  const at::Tensor whole = restored(round_float8(x));
  const at::Tensor parts = at::cat({restored(round_float8(x.narrow(1, 0, 128).contiguous())),
                                    restored(round_float8(x.narrow(1, 128, 128).contiguous()))},
                                   1);
  const at::Tensor largest = x.to(at::kDouble).abs().amax(1, true);
  const at::Tensor differ = whole.ne(parts);
  EXPECT_TRUE((x.abs() < largest * std::exp2(-14)).logical_or(differ.logical_not()).all().item<bool>());
  EXPECT_TRUE(((whole - parts).abs() <= largest * std::exp2(-18)).all().item<bool>());
}

TEST(Float8, ColumnsAreRoundedAsRowsOfTheTurnedMatrix) {
  const at::Tensor x = random_tensor({32, 16}, 4, at::kBFloat16);
  const Float8Matrix turned = round_float8_turned(x), rows = round_float8(x.t().contiguous());
  EXPECT_TRUE(at::equal(turned.values.to(at::kFloat), rows.values.to(at::kFloat)));
  EXPECT_TRUE(at::equal(turned.scales, rows.scales));
}

// libtorch's own product, which a card runs, gives what the formulas give.
TEST(Float8, ProductsAreLibtorchs) {
  const BelowAutograd below;
  const Float8Matrix x = round_float8(random_tensor({21, 64}, 5, at::kBFloat16));
  const Float8Matrix weight = round_float8(random_tensor({48, 64}, 6, at::kBFloat16));
  const at::Tensor exact = at::mm(restored(x), restored(weight).t());
  const at::Tensor y = float8_product(x, weight, at::kFloat, {}, {});
  expect_close(y, exact, 1e-6, 1e-6, "float32");
  const at::Tensor theirs = at::_scaled_mm(x.values, weight.values.t(), x.scales, weight.scales.view({1, -1}),
                                           std::nullopt, std::nullopt, at::kFloat);
  expect_close(y, theirs.to(at::kDouble), 1e-6, 1e-6, "libtorch");
  const at::Tensor bias = random_tensor({48}, 7, at::kBFloat16), residual = random_tensor({21, 48}, 8, at::kBFloat16);
  const at::Tensor narrow = float8_product(x, weight, at::kBFloat16, bias, residual);
  EXPECT_EQ(narrow.scalar_type(), at::kBFloat16);
  const at::Tensor expected = (exact + bias.to(at::kDouble)).to(at::kBFloat16) + residual;
  expect_close(narrow, expected.to(at::kDouble), 1.0 / 128, 1e-2, "bfloat16");
}

TEST(Float8, WhatIsNotFiniteShowsInItsRowAlone) {
  const BelowAutograd below;
  at::Tensor x = random_tensor({4, 32}, 9, at::kBFloat16);
  x[1][3] = std::numeric_limits<float>::infinity();
  x[2][7] = std::numeric_limits<float>::quiet_NaN();
  const Float8Matrix weight = round_float8(random_tensor({16, 32}, 10, at::kBFloat16));
  const at::Tensor y = float8_product(round_float8(x), weight, at::kBFloat16, {}, {});
  EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[3].isfinite().all().item<bool>());
  EXPECT_TRUE(y[1].isnan().all().item<bool>() && y[2].isnan().all().item<bool>());
}

TEST(Float8, NoTokensGiveNoRows) {
  const BelowAutograd below;
  const Float8Matrix weight = round_float8(random_tensor({16, 32}, 10, at::kBFloat16));
  const at::Tensor y = float8_product(round_float8(at::empty({0, 32}, at::kBFloat16)), weight, at::kBFloat16, {}, {});
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{0, 16}));
}

}  // namespace float8_test
}  // namespace orthant::nn
