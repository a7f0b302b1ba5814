#include "orthant/nn/linear.h"

#include "nn/oracle.h"
#include "orthant/nn/kernels/rows.h"

namespace orthant::nn {
namespace linear_test {

// One call with everything it can have, and the same in float64 by autograd.
struct Case {
  at::Tensor x, residual, gy;
  Parameter weight, bias;

  Case(at::IntArrayRef leading, std::int64_t in, std::int64_t out, at::ScalarType dtype, at::ScalarType gradients) {
    const auto shape = [&](std::int64_t last) {
      std::vector<std::int64_t> dims(leading.begin(), leading.end());
      dims.push_back(last);
      return dims;
    };
    x = make_input(random_tensor(shape(in), 1, dtype));
    residual = make_input(random_tensor(shape(out), 2, dtype));
    gy = random_tensor(shape(out), 3, dtype);
    weight = make_parameter(random_tensor({out, in}, 4, dtype), gradients);
    bias = make_parameter(random_tensor({out}, 5, dtype), gradients);
  }
  explicit Case(at::ScalarType dtype) : Case({3, 5}, 7, 9, dtype, dtype) {}

  at::Tensor run(Pass& pass) { return linear(x, weight, &bias, pass, residual); }
};

struct Oracle {
  at::Tensor y, x, residual, weight, bias;  // all but y are gradients
};

Oracle oracle(const Case& given) {
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor x = leaf(given.x), residual = leaf(given.residual);
  const at::Tensor weight = leaf(given.weight.value), bias = leaf(given.bias.value);
  const at::Tensor y = at::matmul(x, weight.t()) + bias + residual;
  run_backward(y, given.gy.to(at::kDouble));
  return {y, x.grad(), residual.grad(), weight.grad(), bias.grad()};
}

void expect_oracle(Case& given, const at::Tensor& y, double scale = 1) {
  const Oracle expected = oracle(given);
  const double bound = tolerance(given.x.scalar_type()) * 4;
  expect_close(y, expected.y, bound, bound, "y");
  expect_close(given.x.grad(), expected.x * scale, bound, bound, "gradient of x");
  expect_close(given.residual.grad(), expected.residual * scale, bound, bound, "gradient of residual");
  expect_close(given.weight.gradient, expected.weight * scale, bound, bound, "gradient of weight");
  expect_close(given.bias.gradient, expected.bias * scale, bound, bound, "gradient of bias");
}

TEST(Linear, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> leadings = {{6}, {1}, {3, 5}, {2, 3, 4}, {0}, {0, 5}, {600}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& leading : leadings) {
      SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " [" << at::IntArrayRef(leading) << "]");
      Case given(leading, 13, 37, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype);
      Pass pass;
      const at::Tensor y = given.run(pass);
      EXPECT_EQ(y.scalar_type(), dtype);
      run_backward(y, given.gy);
      expect_oracle(given, y);
    }
  }
}

TEST(Linear, GradientsAreThoseOfCentralDifferences) {
  Case given({2, 3}, 4, 5, at::kDouble, at::kDouble);
  Pass pass;
  run_backward(given.run(pass), given.gy);
  const auto f = [&] { return given.run(pass); };
  expect_numerical(given.x.grad(), f, given.x, given.gy, "x");
  expect_numerical(given.residual.grad(), f, given.residual, given.gy, "residual");
  expect_numerical(given.weight.gradient, f, given.weight.value, given.gy, "weight");
  expect_numerical(given.bias.gradient, f, given.bias.value, given.gy, "bias");
}

TEST(Linear, WithoutBiasOrResidual) {
  for (const bool has_bias : {false, true}) {
    for (const bool has_residual : {false, true}) {
      Case given(at::kDouble);
      Pass pass;
      const at::Tensor y = linear(given.x, given.weight, has_bias ? &given.bias : nullptr, pass,
                                  has_residual ? given.residual : at::Tensor());
      at::Tensor expected = at::matmul(given.x, given.weight.value.t());
      if (has_bias) expected = expected + given.bias.value;
      if (has_residual) expected = expected + given.residual;
      expect_close(y, expected, "y");
      run_backward(y, given.gy);
      const Oracle gradients = oracle(given);
      expect_close(given.weight.gradient, gradients.weight, "gradient of weight");
      expect_close(given.x.grad(), gradients.x, "gradient of x");
      EXPECT_EQ(given.bias.fresh, !has_bias);
    }
  }
}

TEST(Linear, ASecondBackwardAddsToTheFirst) {
  Case given(at::kFloat);
  Pass pass;
  at::Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = given.run(pass);
    run_backward(y, given.gy);
    EXPECT_FALSE(given.weight.fresh);
  }
  expect_oracle(given, y, 2);
}

TEST(Linear, DeferredWeightGradientsHaveTheSameBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Case now({20, 30}, 33, 47, dtype, at::kFloat);
    Case later({20, 30}, 33, 47, dtype, at::kFloat);
    Pass split;
    split.defer_weights = true;
    for (int i = 0; i < 2; ++i) {
      Pass pass;
      run_backward(now.run(pass), now.gy);
      run_backward(later.run(split), later.gy);
      EXPECT_EQ(later.weight.fresh, i == 0) << "nothing is added before the queue runs";
      run_deferred(split);
      expect_same_bits(later.weight.gradient, now.weight.gradient, "weight");
      expect_same_bits(later.bias.gradient, now.bias.gradient, "bias");
      expect_same_bits(later.x.grad(), now.x.grad(), "x");
      EXPECT_FALSE(later.weight.gradient.requires_grad());
    }
  }
}

TEST(Linear, AFrozenWeightIsLeftAloneAndKeepsNothing) {
  Case given(at::kDouble);
  const Oracle expected = oracle(given);
  given.weight = make_frozen(given.weight.value);
  Pass pass;
  const at::Tensor x = given.x.mul(1);
  const at::Tensor y = linear(x, given.weight, &given.bias, pass, given.residual);
  EXPECT_EQ(x.use_count(), 1) << "x is kept although nobody needs it";
  run_backward(y, given.gy);
  expect_close(given.x.grad(), expected.x, "gradient of x");
  expect_close(given.bias.gradient, expected.bias, "gradient of bias");
  EXPECT_TRUE(given.weight.fresh);
}

TEST(Linear, ParametersLearnWhenTheInputNeedsNoGradient) {
  Case given(at::kDouble);
  const Oracle expected = oracle(given);
  given.x = given.x.detach();
  given.residual = given.residual.detach();
  Pass pass;
  run_backward(given.run(pass), given.gy);
  expect_close(given.weight.gradient, expected.weight, "gradient of weight");
  expect_close(given.bias.gradient, expected.bias, "gradient of bias");
}

TEST(Linear, ReadsStridedInputsAndGradients) {
  Case given({4, 6}, 6, 4, at::kDouble, at::kDouble);
  Case strided({4, 6}, 6, 4, at::kDouble, at::kDouble);
  const auto turned = [](const at::Tensor& t) { return t.detach().transpose(0, 1).contiguous().transpose(0, 1); };
  strided.x = turned(given.x).requires_grad_();
  strided.residual = turned(given.residual).requires_grad_();
  ASSERT_FALSE(strided.x.is_contiguous());
  Pass pass;
  const at::Tensor y = given.run(pass);
  const at::Tensor again = strided.run(pass);
  expect_same_bits(again, y, "y");
  run_backward(y, given.gy);
  run_backward(again, turned(given.gy));
  expect_same_bits(strided.x.grad(), given.x.grad(), "x");
  expect_same_bits(strided.residual.grad(), given.residual.grad(), "residual");
  expect_same_bits(strided.weight.gradient, given.weight.gradient, "weight");
  expect_same_bits(strided.bias.gradient, given.bias.gradient, "bias");
}

TEST(Linear, LeavesTheResidualAsItWas) {
  Case given(at::kFloat);
  const at::Tensor before = given.residual.detach().clone();
  Pass pass;
  at::NoGradGuard no_grad;
  const at::Tensor with_bias = given.run(pass);
  const at::Tensor without = linear(given.x, given.weight, nullptr, pass, given.residual);
  expect_same_bits(given.residual, before, "residual");
  EXPECT_FALSE(with_bias.is_alias_of(given.residual) || without.is_alias_of(given.residual));
}

TEST(Linear, TheResidualsGradientIsNotCopied) {
  Case given(at::kFloat);
  given.x = given.x.detach();
  const at::Tensor inner = given.residual.mul(1);  // so that the gradient is seen as it arrives
  at::Tensor seen;
  inner.register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  Pass pass;
  run_backward(linear(given.x, given.weight, &given.bias, pass, inner), given.gy);
  EXPECT_TRUE(seen.is_same(given.gy));
}

TEST(Linear, KeepsNothingWithoutGradients) {
  Case given(at::kFloat);
  Pass pass;
  at::Tensor recorded = given.run(pass);
  at::NoGradGuard no_grad;
  const auto uses = given.x.storage().use_count();
  const at::Tensor y = given.run(pass);
  EXPECT_EQ(given.x.storage().use_count(), uses);
  EXPECT_FALSE(y.requires_grad());
  expect_same_bits(y, recorded, "y");
}

TEST(Linear, ProductOfNarrowTypesIsRoundedOnce) {
  for (const auto& [dtype, unit] : {std::pair{at::kBFloat16, 1.0 / 256}, {at::kHalf, 1.0 / 2048}}) {
    const at::Tensor x = random_tensor({5, 64}, 1, dtype);
    const at::Tensor weight = random_tensor({6, 64}, 2, dtype);
    const at::Tensor exact = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
    const at::Tensor y = product(x, weight);
    EXPECT_EQ(y.scalar_type(), dtype);
    expect_close(y, exact, unit, 1e-4, c10::toString(dtype));  // half a unit is lost at most, plus float32's
  }
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

// The output must never be the bias' own memory.
TEST(Linear, OneRowLeavesTheBiasAsItWas) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  Parameter weight{.value = at::ones({3, 2}, options), .gradient = {}};
  Parameter bias{.value = at::arange(3, options), .gradient = {}};
  Pass pass;
  at::NoGradGuard no_gradients;
  const auto y = linear(at::ones({1, 2}, options), weight, &bias, pass);
  EXPECT_TRUE(at::equal(y, at::arange(3, options).view({1, 3}) + 2));
  EXPECT_TRUE(at::equal(bias.value, at::arange(3, options)));
}

}  // namespace linear_test
}  // namespace orthant::nn
