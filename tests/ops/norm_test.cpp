#include "orthant/ops/norm/norm_pass.h"

#include "ops/oracle.h"
#include "orthant/ops/linear/columns.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/ops/norm/cpu_kernels.h"

namespace orthant::nn {
namespace norm_test {

constexpr double kEps = 1e-5;
constexpr double kP = 0.3;

Pass make_pass() {
  return {.seed = 7, .step = 3, .first_row = 2};
}

TEST(NormFormulas, FusedEqualsPlain) {
  for (const Norm kind : {Norm::rms, Norm::layer}) {
    for (const std::int64_t width : {1, 15, 16, 64, 100, 257}) {
      const at::Tensor x = random_tensor({300, width}, 1), gy = random_tensor({300, width}, 2);
      const at::Tensor weight = random_tensor({width}, 3);
      const at::Tensor bias = kind == Norm::rms ? at::Tensor() : random_tensor({width}, 4);
      const Normalized plain_out = plain::norm(kind, x, weight, bias, kEps);
      const Normalized fused_out = fused::norm(kind, x, weight, bias, kEps);
      expect_close(fused_out.y, plain_out.y, "y");
      expect_close(fused_out.statistics, plain_out.statistics, "statistics");
      const NormInput input = {x, plain_out.statistics, weight};
      const DropoutGrid grid = dropout_grid(make_pass(), "site", kP, x.sizes());
      const NormGradients expected = plain::norm_backward(kind, gy, input, {}, &grid);
      const NormGradients actual = fused::norm_backward(kind, gy, input, {}, &grid);
      expect_close(actual.x, expected.x, 1e-9, 1e-9, "gradient of x");
      expect_close(actual.dropped, expected.dropped, 1e-9, 1e-9, "dropped gradient of x");
      expect_close(sum_columns(actual.weight), sum_columns(expected.weight), "gradient of weight");
      if (kind == Norm::layer) {
        expect_close(sum_columns(actual.bias), sum_columns(expected.bias), "gradient of bias");
      }
    }
  }
}

// The gradient of a residual that is handed on is added with the bits of an addition of its own, before the dropout.
TEST(NormPass, AddsTheResidualsGradient) {
  const BelowAutograd below;
  for (const Norm kind : {Norm::rms, Norm::layer}) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const bool drops : {false, true}) {
        if (drops && kind == Norm::rms) continue;
        const at::Tensor x = random_tensor({15, 37}, 1, dtype), gy = random_tensor({15, 37}, 2, dtype);
        const at::Tensor residual = random_tensor({15, 37}, 3, dtype);
        Parameter weight = make_parameter(random_tensor({37}, 4, dtype));
        Parameter bias = make_parameter(random_tensor({37}, 5, dtype));
        const Normalized out = norm_forward(x, {kind, kEps, &weight, kind == Norm::rms ? nullptr : &bias});
        const NormInput input = {x, out.statistics, weight.value.detach()};
        const DropoutGrid grid = dropout_grid(make_pass(), "site", kP, x.sizes());
        const NormGradients joined = norm_backward(kind, gy, input, {}, drops ? &grid : nullptr, residual);
        const NormGradients apart = norm_backward(kind, gy, input, {}, nullptr);
        expect_same_bits(joined.x, apart.x + residual, "gradient of x");
        expect_same_bits(joined.weight, apart.weight, "gradient of the weight");
        if (drops) expect_same_bits(joined.dropped, apply_dropout(grid, joined.x), "dropped gradient of x");
        const NormGradients weights = norm_backward(kind, gy, input, {.input = false}, nullptr);
        expect_same_bits(weights.weight, joined.weight, "in a call of its own");
        EXPECT_FALSE(weights.x.defined());
      }
    }
  }
}

TEST(NormKernels, EveryInstructionSetGivesTheSame) {
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    const auto table = kernels::kernels_of<kernels::NormKernels<float>>(isa);
    for (const std::int64_t width : {5, 64, 131}) {
      const at::Tensor x = random_tensor({4, width}, 1, at::kFloat), gy = random_tensor({4, width}, 2, at::kFloat);
      const at::Tensor weight = random_tensor({width}, 3, at::kFloat), bias = random_tensor({width}, 4, at::kFloat);
      const Normalized expected = plain::norm(Norm::layer, x, weight, bias, kEps);
      at::Tensor y = at::empty({4, width}), statistics = at::empty({4, 2});
      table.layer_forward(y.mutable_data_ptr<float>(), statistics.mutable_data_ptr<float>(), x.const_data_ptr<float>(),
                          weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), 4, width, float{kEps});
      expect_close(y, expected.y, "y");
      at::Tensor gx = at::empty({4, width}), dweight = at::zeros({width}), dbias = at::zeros({width});
      table.layer_backward(gx.mutable_data_ptr<float>(), dweight.mutable_data_ptr<float>(),
                           dbias.mutable_data_ptr<float>(), gy.const_data_ptr<float>(), x.const_data_ptr<float>(),
                           statistics.const_data_ptr<float>(), weight.const_data_ptr<float>(), 4, width);
      const NormGradients gradients = plain::norm_backward(Norm::layer, gy, {x, expected.statistics, weight}, {});
      expect_close(gx, gradients.x, "gradient of x");
      expect_close(dweight, sum_columns(gradients.weight), "gradient of weight");
      expect_close(dbias, sum_columns(gradients.bias), "gradient of bias");
    }
  }
}

}  // namespace norm_test
}  // namespace orthant::nn
