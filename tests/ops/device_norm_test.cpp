// Norms and column sums of a CUDA device against the plain formulas in float64: see device_case.h.
#include "ops/device_case.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/dropout/dropout_device.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/norm/norm_formulas.h"

namespace orthant::nn::device_norm_test {

using namespace device_case;

struct Shape {
  at::ScalarType dtype;
  std::int64_t rows, width;
};

std::vector<Shape> norm_shapes(Random& random, device::Variants (*variants_of)(at::ScalarType, std::int64_t),
                               std::initializer_list<int> parts) {
  std::vector<Shape> shapes;
  device::Variants variants;
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    shapes.push_back({dtype, random.rows(), random.width(shape % 20 == 0 ? 8192 : 1500)});
    for (const auto& variant : variants_of(dtype, shapes.back().width)) variants.push_back(variant);
  }
  prepare(variants, parts);
  return shapes;
}

TEST(DeviceNorm, RmsNorm) {
  Random random(1);
  for (const auto& [dtype, rows, width] : norm_shapes(random, device::norm_variants, {1, 2, 3})) {
    const auto what = fmt::format("rms_norm {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype), weight = values({width}, dtype), gy = values({rows, width}, dtype);
    const auto residual = values({rows, width}, dtype);
    ASSERT_TRUE(device::serves_rms_norm(x)) << what;
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
          return std::vector<at::Tensor>{all.x, sum_columns(all.weight), inputs.x, sum_columns(weights.weight),
                                         sum.x, sum_columns(sum.weight)};
        },
        what);
    const auto d =
        plain::norm_backward(Norm::rms, wide(gy), {wide(x), expected.statistics, wide(weight)}, {true, true});
    expect_near(gradients[0], d.x, 2 * bound(dtype), what);
    expect_near(gradients[1], d.weight.sum(0), 5e-5, what);
    // Parts, and the residual added in the same pass, have the bits of separate passes.
    EXPECT_TRUE(at::equal(gradients[0], gradients[2])) << what;
    EXPECT_TRUE(at::equal(gradients[1], gradients[3])) << what;
    EXPECT_TRUE(at::equal(gradients[4], residual + gradients[0])) << what;
    EXPECT_TRUE(at::equal(gradients[5], gradients[1])) << what;
  }
}

TEST(DeviceNorm, LayerNorm) {
  Random random(11);
  for (const auto& [dtype, rows, width] : norm_shapes(random, device::layer_norm_variants, {1, 2, 3, 5, 7})) {
    const auto what = fmt::format("layer_norm {} rows of {}, {}", rows, width, c10::toString(dtype));
    // A mean that is not small shows a variance that is taken without it.
    const auto x = values({rows, width}, dtype).add_(2), gy = values({rows, width}, dtype);
    const auto weight = values({width}, dtype), bias = values({width}, dtype);
    ASSERT_TRUE(device::serves_layer_norm(x)) << what;
    const auto out = twice(
        [&] {
          const auto y = device::layer_norm(x, weight, bias, 1e-5);
          return std::vector<at::Tensor>{y.y, y.statistics};
        },
        what);
    const auto expected = plain::norm(Norm::layer, wide(x), wide(weight), wide(bias), 1e-5);
    // Rows of next to equal numbers have large rstd, which differences of float32 are multiplied by.
    const double steep = rows == 0 ? 0 : 1e-6 * expected.statistics.select(1, 1).max().item<double>();
    expect_near(out[0], expected.y, bound(dtype) + steep, what);
    expect_near(out[1], expected.statistics, 2e-5 + steep, what);
    const NormInput input{x, out[1], weight};
    const auto gradients = twice(
        [&] {
          const auto all = device::layer_norm_backward(gy, input, {true, true});
          const auto inputs = device::layer_norm_backward(gy, input, {true, false});
          const auto weights = device::layer_norm_backward(gy, {x, out[1], {}}, {false, true});
          return std::vector<at::Tensor>{all.x,    sum_columns(all.weight),     sum_columns(all.bias),
                                         inputs.x, sum_columns(weights.weight), sum_columns(weights.bias)};
        },
        what);
    const auto d = plain::norm_backward(Norm::layer, wide(gy), {wide(x), wide(out[1]), wide(weight)}, {true, true});
    // A gradient along a row's mean or along the row itself vanishes; of a short row not much else is left.
    const auto terms = wide(gy) * wide(weight) * wide(out[1]).slice(1, 1, 2);
    const double size = rows == 0 ? 0 : terms.abs().max().item<double>();
    expect_near(gradients[0], d.x, 2 * bound(dtype) + steep, what, 0.1 * size);
    expect_near(gradients[1], d.weight.sum(0), 5e-5 + steep, what);
    expect_near(gradients[2], d.bias.sum(0), 5e-5, what);
    // Parts have the bits of separate passes.
    for (const std::size_t i : {0, 1, 2}) EXPECT_TRUE(at::equal(gradients[i], gradients[i + 3])) << what << ", " << i;
  }
}

// One pass has the bits of the passes it takes the place of: dropout, sum, norm; and back.
// A block takes one row after the other, and loads some ahead.
TEST(DeviceNorm, LayerNormOfManyRowsForEachBlock) {
  Random random(13);
  const std::int64_t rows = 4227, width = 264;
  const auto x = values({rows, width}, at::kBFloat16), gy = values({rows, width}, at::kBFloat16);
  const auto residual = values({rows, width}, at::kBFloat16), weight = values({width}, at::kBFloat16);
  auto grid = random_grid(random, rows, width);
  grid.first_channel = 0;
  const auto statistics = device::layer_norm(x, weight, weight, 1e-5).statistics;
  const auto d = plain::norm_backward(Norm::layer, wide(gy), {wide(x), wide(statistics), wide(weight)}, {true, true});
  for (const bool adds : {false, true}) {
    const auto found = twice(
        [&] {
          const auto all = device::layer_norm_backward(gy, {x, statistics, weight}, {true, true}, &grid,
                                                       adds ? residual : at::Tensor());
          return std::vector<at::Tensor>{all.x, all.dropped, sum_columns(all.weight), sum_columns(all.bias)};
        },
        "many rows");
    expect_near(found[0], adds ? d.x + wide(residual) : d.x, 2 * bound(at::kBFloat16), "gradient");
    EXPECT_TRUE(at::equal(found[1], apply_dropout(grid, found[0]))) << "dropped";
    expect_near(found[2], d.weight.sum(0), 5e-5, "weight");
    expect_near(found[3], d.bias.sum(0), 5e-5, "bias");
  }
}

TEST(DeviceNorm, DropoutAddLayerNormHasTheBitsOfItsParts) {
  Random random(12);
  for (const auto& [dtype, rows, width] : norm_shapes(random, device::layer_norm_variants, {3, 7})) {
    const auto what = fmt::format("dropout_add_layer_norm {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype), residual = values({rows, width}, dtype);
    const auto gy = values({rows, width}, dtype), d_sum = values({rows, width}, dtype);
    const auto weight = values({width}, dtype), bias = values({width}, dtype);
    const auto drawn = random_grid(random, rows, width);
    const DropoutGrid* const grid = random.between(0, 4) == 0 ? nullptr : &drawn;
    const auto out = twice(
        [&] {
          const auto sum = at::empty_like(x);
          const auto y = device::dropout_add_norm(sum, x, residual, grid, weight, bias, 1e-5);
          const auto back = device::layer_norm_backward(gy, {sum, y.statistics, weight}, {true, true}, grid, d_sum);
          return std::vector<at::Tensor>{
              sum, y.y, y.statistics, back.x, back.dropped, sum_columns(back.weight), sum_columns(back.bias)};
        },
        what);
    const BelowAutograd below;
    const auto sum = residual + device::dropout_add(grid, x, {});
    const auto y = device::layer_norm(sum, weight, bias, 1e-5);
    const auto back = device::layer_norm_backward(gy, {sum, y.statistics, weight}, {true, true});
    const auto d_x = d_sum + back.x;
    EXPECT_TRUE(at::equal(out[0], sum)) << what;
    EXPECT_TRUE(at::equal(out[1], y.y)) << what;
    EXPECT_TRUE(at::equal(out[2], y.statistics)) << what;
    EXPECT_TRUE(at::equal(out[3], d_x)) << what;
    if (grid != nullptr) EXPECT_TRUE(at::equal(out[4], device::dropout_add(grid, d_x, {}))) << what;
    EXPECT_EQ(out[4].defined(), grid != nullptr) << what;
    EXPECT_TRUE(at::equal(out[5], sum_columns(back.weight))) << what;
    EXPECT_TRUE(at::equal(out[6], sum_columns(back.bias))) << what;
  }
}

TEST(DeviceNorm, SumOfColumns) {
  Random random(7);
  for (int shape = 0; shape < kShapes; ++shape) {
    const auto dtype = random.dtype();
    const auto rows = random.between(0, shape % 10 == 0 ? 20000 : 1500), width = random.width(3000);
    const auto what = fmt::format("sum of {} rows of {}, {}", rows, width, c10::toString(dtype));
    const auto x = values({rows, width}, dtype), y = values({rows, width}, dtype);
    Parameter parameter;
    parameter.value = at::empty({width}, x.options());
    const auto before = values({width}, at::kFloat);
    const auto out = twice(
        [&] {
          parameter.gradient = before.clone();
          parameter.fresh = false;
          add_column_sums(parameter, x);
          const auto added = parameter.gradient.clone();
          parameter.fresh = true;
          Parameter other;
          other.value = parameter.value;
          other.gradient = before.clone();
          other.fresh = false;
          add_column_sums(parameter, x, other, y);
          return std::vector<at::Tensor>{device::sum_columns(x), added, parameter.gradient, device::sum_columns(y),
                                         other.gradient};
        },
        what);
    expect_near(out[0], wide(x).sum(0), 1e-5, what);
    EXPECT_TRUE(at::equal(out[1], before + out[0])) << what;
    EXPECT_TRUE(at::equal(out[2], out[0])) << what;
    EXPECT_TRUE(at::equal(out[4], before + out[3])) << what;
  }
}

}  // namespace orthant::nn::device_norm_test
