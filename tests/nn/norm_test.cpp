#include "orthant/nn/norm.h"

#include <ATen/Parallel.h>

#include "nn/oracle.h"
#include "orthant/nn/columns.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/kernels/norm.h"
#include "orthant/nn/norm_formulas.h"

namespace orthant::nn {
namespace norm_test {

constexpr double kEps = 1e-5;
constexpr double kP = 0.3;

enum class Kind { rms, layer, add, dropped };  // the last two: dropout_add_layer_norm with p = 0 and p = kP
constexpr Kind kKinds[] = {Kind::rms, Kind::layer, Kind::add, Kind::dropped};

bool has_residual(Kind kind) {
  return kind == Kind::add || kind == Kind::dropped;
}

struct Case {
  Kind kind;
  at::Tensor x, residual, gy;
  Parameter weight, bias;

  Case(Kind given, at::IntArrayRef shape, at::ScalarType dtype, at::ScalarType gradients) : kind(given) {
    x = make_input(random_tensor(shape, 1, dtype).mul(2).add(0.5));
    residual = make_input(random_tensor(shape, 2, dtype));
    gy = random_tensor(shape, 3, dtype);
    weight = make_parameter(random_tensor({shape.back()}, 4, dtype), gradients);
    bias = make_parameter(random_tensor({shape.back()}, 5, dtype), gradients);
  }
  Case(Kind given, at::ScalarType dtype) : Case(given, {3, 5, 37}, dtype, dtype) {}

  at::Tensor run(Pass& pass) {
    switch (kind) {
      case Kind::rms:
        return rms_norm(x, weight, kEps, pass);
      case Kind::layer:
        return layer_norm(x, weight, bias, kEps, pass);
      default:
        return dropout_add_layer_norm(x, residual, kind == Kind::add ? 0 : kP, "site", weight, bias, kEps, pass);
    }
  }
};

Pass make_pass() {
  Pass pass;
  pass.seed = 5;
  pass.first_row = 2;
  return pass;
}

struct Oracle {
  at::Tensor y, x, residual, weight, bias;  // all but y are gradients
};

// By autograd from the formulas' text, in float64.
Oracle oracle(const Case& given) {
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor x = leaf(given.x), residual = leaf(given.residual);
  const at::Tensor weight = leaf(given.weight.value), bias = leaf(given.bias.value);
  at::Tensor sum = x;
  if (given.kind == Kind::dropped) sum = x * dropout_factors(make_pass(), "site", kP, x.sizes(), at::kDouble);
  if (has_residual(given.kind)) sum = sum + residual;
  const at::Tensor centred = given.kind == Kind::rms ? sum : sum - sum.mean(-1, true);
  at::Tensor y = centred / (centred.square().mean(-1, true) + kEps).sqrt() * weight;
  if (given.kind != Kind::rms) y = y + bias;
  run_backward(y, given.gy.to(at::kDouble));
  return {y, x.grad(), residual.grad(), weight.grad(), bias.grad()};
}

void expect_oracle(Case& given, const at::Tensor& y, double scale = 1) {
  const Oracle expected = oracle(given);
  const double bound = tolerance(given.x.scalar_type()) * 4;
  expect_close(y, expected.y, bound, bound, "y");
  expect_close(given.x.grad(), expected.x * scale, bound, bound, "gradient of x");
  if (has_residual(given.kind)) {
    expect_close(given.residual.grad(), expected.residual * scale, bound, bound, "gradient of residual");
  }
  expect_close(given.weight.gradient, expected.weight * scale, bound, 4 * bound, "gradient of weight");
  if (given.kind != Kind::rms) {
    expect_close(given.bias.gradient, expected.bias * scale, bound, 4 * bound, "gradient of bias");
  }
}

std::string name(Kind kind) {
  return kind == Kind::rms ? "rms" : kind == Kind::layer ? "layer" : kind == Kind::add ? "add" : "dropped";
}

TEST(Norm, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> shapes = {{6, 64}, {1, 1},     {3, 5, 37}, {2, 3, 256},
                                                         {0, 16}, {0, 3, 16}, {700, 19}};
  for (const Kind kind : kKinds) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const auto& shape : shapes) {
        SCOPED_TRACE(testing::Message() << name(kind) << " " << c10::toString(dtype) << " [" << at::IntArrayRef(shape)
                                        << "]");
        Case given(kind, shape, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype);
        Pass pass = make_pass();
        const at::Tensor y = given.run(pass);
        EXPECT_EQ(y.scalar_type(), dtype);
        run_backward(y, given.gy);
        expect_oracle(given, y);
      }
    }
  }
}

TEST(Norm, GradientsAreThoseOfCentralDifferences) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name(kind));
    Case given(kind, {2, 3, 5}, at::kDouble, at::kDouble);
    Pass pass = make_pass();
    run_backward(given.run(pass), given.gy);
    const auto f = [&] { return given.run(pass); };
    expect_numerical(given.x.grad(), f, given.x, given.gy, "x");
    expect_numerical(given.weight.gradient, f, given.weight.value, given.gy, "weight");
    if (kind != Kind::rms) expect_numerical(given.bias.gradient, f, given.bias.value, given.gy, "bias");
    if (has_residual(kind)) expect_numerical(given.residual.grad(), f, given.residual, given.gy, "residual");
  }
}

TEST(Norm, FusedEqualsPlain) {
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

TEST(Norm, ASecondBackwardAddsToTheFirst) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name(kind));
    Case given(kind, at::kFloat);
    Pass pass = make_pass();
    at::Tensor y;
    for (int i = 0; i < 2; ++i) {
      y = given.run(pass);
      run_backward(y, given.gy);
    }
    expect_oracle(given, y, 2);
  }
}

TEST(Norm, DeferredWeightGradientsHaveTheSameBits) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t width : {37, 256}) {
      SCOPED_TRACE(name(kind));
      Case now(kind, {30, 20, width}, at::kFloat, at::kFloat);
      Case later(kind, {30, 20, width}, at::kFloat, at::kFloat);
      for (int i = 0; i < 2; ++i) {
        Pass pass = make_pass();
        Pass split = make_pass();
        split.defer_weights = true;
        run_backward(now.run(pass), now.gy);
        run_backward(later.run(split), later.gy);
        EXPECT_EQ(later.weight.fresh, i == 0) << "nothing is added before the queue runs";
        run_deferred(split);
        expect_same_bits(later.weight.gradient, now.weight.gradient, "weight");
        if (kind != Kind::rms) expect_same_bits(later.bias.gradient, now.bias.gradient, "bias");
        expect_same_bits(later.x.grad(), now.x.grad(), "x");
      }
    }
  }
}

TEST(Norm, FrozenParametersAreLeftAlone) {
  for (const Kind kind : {Kind::layer, Kind::dropped}) {
    Case given(kind, at::kDouble);
    const Oracle expected = oracle(given);
    given.weight = make_frozen(given.weight.value);
    Pass pass = make_pass();
    run_backward(given.run(pass), given.gy);
    expect_close(given.bias.gradient, expected.bias, "bias, beside a frozen weight");
    given.bias = make_frozen(given.bias.value);
    given.x.mutable_grad().reset();
    run_backward(given.run(pass), given.gy);
    expect_close(given.x.grad(), expected.x, "x, with frozen parameters");
    EXPECT_TRUE(given.weight.fresh && given.bias.fresh);
  }
}

TEST(Norm, ParametersLearnWhenTheInputNeedsNoGradient) {
  for (const Kind kind : kKinds) {
    Case given(kind, at::kDouble);
    const Oracle expected = oracle(given);
    given.x = given.x.detach();
    given.residual = given.residual.detach();
    Pass pass = make_pass();
    run_backward(given.run(pass), given.gy);
    expect_close(given.weight.gradient, expected.weight, "gradient of weight");
  }
}

TEST(Norm, ReadsStridedInputsAndGradients) {
  const auto turned = [](const at::Tensor& t) { return t.detach().transpose(0, 2).contiguous().transpose(0, 2); };
  for (const Kind kind : kKinds) {
    Case given(kind, at::kFloat);
    Case strided(kind, at::kFloat);
    strided.x = turned(given.x).requires_grad_();
    strided.residual = turned(given.residual).requires_grad_();
    ASSERT_FALSE(strided.x.is_contiguous());
    Pass pass = make_pass();
    run_backward(given.run(pass), given.gy);
    run_backward(strided.run(pass), turned(given.gy));
    expect_same_bits(strided.x.grad(), given.x.grad(), "x");
    expect_same_bits(strided.weight.gradient, given.weight.gradient, "weight");
  }
}

TEST(Norm, WithoutGradientsGivesTheSameAndKeepsNothing) {
  for (const Kind kind : kKinds) {
    Case given(kind, at::kFloat);
    Pass pass = make_pass();
    const at::Tensor recorded = given.run(pass);
    at::NoGradGuard no_grad;
    const auto uses = given.x.storage().use_count();
    const at::Tensor y = given.run(pass);
    EXPECT_EQ(given.x.storage().use_count(), uses);
    EXPECT_FALSE(y.requires_grad());
    expect_same_bits(y, recorded, "y");
  }
}

TEST(Norm, DropoutAddKeepsTheSumAlone) {
  Case given(Kind::dropped, at::kFloat);
  const at::Tensor x = given.x.mul(1), residual = given.residual.mul(1);
  Pass pass = make_pass();
  const at::Tensor y = dropout_add_layer_norm(x, residual, kP, "site", given.weight, given.bias, kEps, pass);
  EXPECT_EQ(x.use_count(), 1);
  EXPECT_EQ(residual.use_count(), 1);
}

TEST(Norm, WithoutDropoutBothAddendsShareOneGradient) {
  Case given(Kind::dropped, at::kFloat);
  Pass pass = make_pass();
  pass.training = false;
  const at::Tensor x = given.x.mul(1), residual = given.residual.mul(1);
  at::Tensor of_x, of_residual;
  x.register_hook([&](const at::Tensor& gradient) { of_x = gradient; });
  residual.register_hook([&](const at::Tensor& gradient) { of_residual = gradient; });
  run_backward(dropout_add_layer_norm(x, residual, kP, "site", given.weight, given.bias, kEps, pass), given.gy);
  EXPECT_TRUE(of_x.is_same(of_residual));
}

TEST(Norm, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> weights, inputs;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    Case given(Kind::dropped, {40, 50, 96}, at::kFloat, at::kFloat);
    Pass pass = make_pass();
    run_backward(given.run(pass), given.gy);
    weights.push_back(given.weight.gradient);
    inputs.push_back(given.x.grad());
  }
  at::set_num_threads(threads);
  expect_same_bits(weights[1], weights[0], "weight");
  expect_same_bits(inputs[1], inputs[0], "x");
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

NormAndResidual run_both(Case& given, Pass& pass) {
  if (given.kind == Kind::rms) return rms_norm_and_residual(given.x, given.weight, kEps, pass);
  if (given.kind == Kind::layer) return layer_norm_and_residual(given.x, given.weight, given.bias, kEps, pass);
  return dropout_add_layer_norm_and_residual(given.x, given.residual, given.kind == Kind::add ? 0 : kP, "site",
                                             given.weight, given.bias, kEps, pass);
}

// The gradient of a residual that is handed on is added to the norm's, with the bits of an addition of its own.
TEST(Norm, AddsTheResidualsGradientInItsBackward) {
  for (const Kind kind : {Kind::rms, Kind::layer}) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const bool defers : {false, true}) {
        Case joined(kind, dtype), apart(kind, dtype);
        Pass first = make_pass(), second = make_pass();
        first.defer_weights = second.defer_weights = defers;
        const auto both = run_both(joined, first);
        run_backward(both.norm + both.residual * 2, joined.gy);
        run_deferred(first);
        run_backward(apart.run(second) + apart.x * 2, apart.gy);
        run_deferred(second);
        EXPECT_TRUE(at::equal(joined.x.grad(), apart.x.grad()));
        EXPECT_TRUE(at::equal(joined.weight.gradient, apart.weight.gradient));
      }
    }
  }
}

// Of a sum that is handed on: dropped for x, as it is for the residual in front.
TEST(Norm, AddsTheGradientOfTheSumBeforeItIsDropped) {
  for (const Kind kind : {Kind::add, Kind::dropped}) {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      for (const bool defers : {false, true}) {
        Case joined(kind, dtype), apart(kind, dtype);
        Pass first = make_pass(), second = make_pass();
        first.defer_weights = second.defer_weights = defers;
        const auto both = run_both(joined, first);
        run_backward(both.norm + both.residual * 2, joined.gy);
        run_deferred(first);
        const auto sum = dropout_add(apart.x, apart.residual, kind == Kind::add ? 0 : kP, "site", second);
        run_backward(layer_norm(sum, apart.weight, apart.bias, kEps, second) + sum * 2, apart.gy);
        run_deferred(second);
        const double bound = tolerance(dtype) * 4;
        expect_close(both.residual, sum, bound, bound, "sum");
        expect_close(joined.x.grad(), apart.x.grad(), bound, bound, "gradient of x");
        expect_close(joined.residual.grad(), apart.residual.grad(), bound, bound, "gradient of residual");
        expect_close(joined.weight.gradient, apart.weight.gradient, bound, 4 * bound, "gradient of weight");
        expect_close(joined.bias.gradient, apart.bias.gradient, bound, 4 * bound, "gradient of bias");
      }
    }
  }
}

// Whoever takes the residual alone gets its gradient alone.
TEST(Norm, HandsTheResidualsGradientOnWhenNobodyReadsTheNorm) {
  Case given(Kind::rms, at::kDouble);
  Pass pass = make_pass();
  run_backward(run_both(given, pass).residual * 3, given.gy);
  EXPECT_TRUE(at::equal(given.x.grad(), given.gy * 3));
  Case dropped(Kind::dropped, at::kDouble);
  run_backward(run_both(dropped, pass).residual * 3, dropped.gy);
  const auto factors = dropout_factors(pass, "site", kP, dropped.x.sizes(), at::kDouble);
  expect_close(dropped.x.grad(), dropped.gy * 3 * factors, "gradient of x");
  EXPECT_TRUE(at::equal(dropped.residual.grad(), dropped.gy * 3));
}

}  // namespace norm_test
}  // namespace orthant::nn
