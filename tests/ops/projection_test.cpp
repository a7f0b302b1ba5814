#include "orthant/ops/linear/projection.h"

#include "ops/oracle.h"
#include "orthant/nn/kernels/rows.h"
#include "orthant/ops/linear/columns.h"

namespace orthant::nn {
namespace projection_test {

TEST(Projection, ProductOfNarrowTypesIsRoundedOnce) {
  const BelowAutograd below;
  for (const auto& [dtype, unit] : {std::pair{at::kBFloat16, 1.0 / 256}, {at::kHalf, 1.0 / 2048}}) {
    const at::Tensor x = random_tensor({5, 64}, 1, dtype), weight = random_tensor({6, 64}, 2, dtype);
    const at::Tensor exact = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
    const at::Tensor y = project(x, weight, {}, {});
    EXPECT_EQ(y.scalar_type(), dtype);
    expect_close(y, exact, unit, 1e-4, c10::toString(dtype));  // half a unit is lost at most, plus float32's
  }
}

// Results lie in memory of their own, whatever is added.
TEST(Projection, LeavesBiasAndResidualAsTheyWere) {
  const BelowAutograd below;
  for (const std::int64_t tokens : {1, 5}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = random_tensor({tokens, 4}, 1, dtype), weight = random_tensor({3, 4}, 2, dtype);
      const at::Tensor bias = random_tensor({3}, 3, dtype), residual = random_tensor({tokens, 3}, 4, dtype);
      const at::Tensor bias_before = bias.clone(), residual_before = residual.clone();
      const at::Tensor product = project(x, weight, {}, {});
      const double bound = 4 * tolerance(dtype);
      for (const auto& [with, added] : {std::pair(bias, at::Tensor()), {at::Tensor(), residual}, {bias, residual}}) {
        const at::Tensor y = project(x, weight, with, added);
        at::Tensor expected = product.to(at::kDouble);
        if (with.defined()) expected = expected + with;
        if (added.defined()) expected = expected + added;
        expect_close(y, expected, bound, bound, "y");
        EXPECT_FALSE(y.is_alias_of(bias) || y.is_alias_of(residual));
      }
      expect_same_bits(bias, bias_before, "bias");
      expect_same_bits(residual, residual_before, "residual");
    }
  }
}

TEST(Projection, GradientsAreAddedAndTheFirstOverwrites) {
  const BelowAutograd below;
  const at::Tensor x = random_tensor({6, 4}, 1), gy = random_tensor({6, 3}, 2);
  Parameter weight = make_parameter(random_tensor({3, 4}, 3)), bias = make_parameter(random_tensor({3}, 4));
  for (const int times : {1, 2}) {
    add_product_gradient(weight, gy, x, nullptr);
    add_column_sums(bias, gy);
    expect_close(weight.gradient, at::mm(gy.t(), x) * times, "gradient of the weight");
    expect_close(bias.gradient, gy.sum(0) * times, "gradient of the bias");
    EXPECT_FALSE(weight.fresh || bias.fresh);
  }
  Parameter frozen = make_frozen(random_tensor({3}, 4));
  add_column_sums(frozen, gy);
  EXPECT_TRUE(frozen.fresh);
}

// Each instruction set of this CPU, odd sizes included.
TEST(RowKernels, SumColumnsAndRows) {
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    const auto table = kernels::kernels_of<kernels::RowKernels<float>>(isa);
    for (const std::int64_t width : {1, 7, 16, 33, 130}) {
      for (const std::int64_t rows : {0, 1, 7, 8, 29}) {
        const at::Tensor x = random_tensor({rows, width}, 1, at::kFloat);
        at::Tensor sums = at::empty({width});
        table.sum_columns(sums.mutable_data_ptr<float>(), x.const_data_ptr<float>(), rows, width);
        expect_close(sums, x.to(at::kDouble).sum(0), "sum_columns");
      }
      const at::Tensor x = random_tensor({3, width}, 2, at::kFloat);
      std::vector<const float*> rows;
      for (int i = 0; i < 3; ++i) rows.push_back(x.const_data_ptr<float>() + i * width);
      at::Tensor sum = at::full({width + 1}, -7.0);
      table.sum_rows(sum.mutable_data_ptr<float>(), rows.data(), 3, width);
      expect_same_bits(sum.slice(0, 0, width), (x[0] + x[1]) + x[2], "sum_rows");
      table.add_row(sum.mutable_data_ptr<float>(), rows[1], width);
      expect_same_bits(sum.slice(0, 0, width), ((x[0] + x[1]) + x[2]) + x[1], "add_row");
      EXPECT_EQ(sum[width].item<float>(), -7) << "written beyond the row";
    }
  }
}

}  // namespace projection_test
}  // namespace orthant::nn
