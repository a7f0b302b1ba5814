#include "orthant/nn/mlp.h"

#include "nn/live_bytes.h"
#include "nn/oracle.h"
#include "orthant/nn/activation.h"
#include "orthant/nn/dropout.h"
#include "orthant/nn/kernels/activation.h"

namespace orthant::nn {
namespace mlp_test {

constexpr ActivationKind kKinds[] = {ActivationKind::swiglu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                                     ActivationKind::relu, ActivationKind::silu};
constexpr const char* kSite = "layers.3.mlp.activation";

// One call with everything it can have.
struct Case {
  ActivationKind kind;
  double dropout;
  at::Tensor x, residual, gy;
  Parameter weight, bias;

  Case(ActivationKind activation, at::IntArrayRef leading, std::int64_t inner, at::ScalarType dtype, double p = 0)
      : kind(activation), dropout(p) {
    const auto shape = [&](std::int64_t last) {
      std::vector<std::int64_t> dims(leading.begin(), leading.end());
      dims.push_back(last);
      return dims;
    };
    x = make_input(random_tensor(shape(kind == ActivationKind::swiglu ? 2 * inner : inner), 1, dtype).mul_(2));
    residual = make_input(random_tensor(shape(5), 2, dtype));
    gy = random_tensor(shape(5), 3, dtype);
    const at::ScalarType gradients = dtype == at::kBFloat16 ? at::kFloat : dtype;
    weight = make_parameter(random_tensor({5, inner}, 4, dtype), gradients);
    bias = make_parameter(random_tensor({5}, 5, dtype), gradients);
  }

  at::Tensor run(const at::Tensor& input, Pass& pass, Parameter* added, const at::Tensor& sum) {
    return activation_linear(input, {kind, dropout, kSite}, weight, added, pass, sum);
  }
  at::Tensor run(Pass& pass) { return run(x, pass, &bias, residual); }
};

at::Tensor formula(ActivationKind kind, const at::Tensor& x) {
  if (kind == ActivationKind::gelu) return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
  if (kind == ActivationKind::gelu_tanh) {
    return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
  }
  if (kind == ActivationKind::relu) return x.clamp_min(0);
  if (kind == ActivationKind::silu) return x * at::sigmoid(x);
  const auto halves = x.chunk(2, -1);
  return halves[0] * at::sigmoid(halves[0]) * halves[1];
}

struct Oracle {
  at::Tensor y, x, residual, weight, bias;  // all but y are gradients
};

Oracle oracle(const Case& given, const Pass& pass = {}) {
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).clone().requires_grad_(); };
  const at::Tensor x = leaf(given.x), residual = leaf(given.residual);
  const at::Tensor weight = leaf(given.weight.value), bias = leaf(given.bias.value);
  at::Tensor middle = formula(given.kind, x);
  if (given.dropout > 0) {
    middle = middle * dropout_factors(pass, kSite, given.dropout, middle.sizes(), middle.options());
  }
  const at::Tensor y = at::matmul(middle, weight.t()) + bias + residual;
  run_backward(y, given.gy.to(at::kDouble));
  return {y, x.grad(), residual.grad(), weight.grad(), bias.grad()};
}

void expect_oracle(Case& given, const at::Tensor& y, double scale = 1, const Pass& pass = {}) {
  const Oracle expected = oracle(given, pass);
  const double bound = tolerance(given.x.scalar_type()) * 4;
  const auto near = [&](const at::Tensor& actual, const at::Tensor& wanted, const char* what) {
    expect_close(actual, wanted, bound, wanted.numel() == 0 ? 0 : bound * (1 + wanted.abs().max().item<double>()),
                 what);
  };
  near(y, expected.y, "y");
  near(given.x.grad(), expected.x * scale, "gradient of x");
  near(given.residual.grad(), expected.residual * scale, "gradient of residual");
  near(given.weight.gradient, expected.weight * scale, "gradient of weight");
  near(given.bias.gradient, expected.bias * scale, "gradient of bias");
}

TEST(Mlp, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> leadings = {{6}, {1}, {3, 5}, {0, 5}, {300}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const ActivationKind kind : kKinds) {
      for (const auto& leading : leadings) {
        SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " activation " << static_cast<int>(kind) << " ["
                                        << at::IntArrayRef(leading) << "]");
        Case given(kind, leading, 37, dtype);
        Pass pass;
        const at::Tensor y = given.run(pass);
        EXPECT_EQ(y.scalar_type(), dtype);
        run_backward(y, given.gy);
        expect_oracle(given, y);
      }
    }
  }
}

TEST(Mlp, DropsBetweenActivationAndProjection) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const ActivationKind kind : kKinds) {
      for (const bool deferred : {false, true}) {
        SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " activation " << static_cast<int>(kind));
        Case given(kind, {3, 5}, 37, dtype, 0.3);
        Pass pass;
        pass.seed = 5;
        pass.first_row = 7;
        pass.defer_weights = deferred;
        const at::Tensor y = given.run(pass);
        run_backward(y, given.gy);
        run_deferred(pass);
        expect_oracle(given, y, 1, pass);
      }
    }
  }
  Case given(ActivationKind::relu, {3, 5}, 37, at::kDouble, 0.3), whole(ActivationKind::relu, {3, 5}, 37, at::kDouble);
  Pass still;
  still.training = false;
  expect_same_bits(given.run(still), whole.run(still), "evaluation");
}

TEST(Mlp, GradientsAreThoseOfCentralDifferences) {
  for (const ActivationKind kind : kKinds) {
    Case given(kind, {2, 3}, 4, at::kDouble);
    Pass pass;
    run_backward(given.run(pass), given.gy);
    const auto f = [&] { return given.run(pass); };
    expect_numerical(given.x.grad(), f, given.x, given.gy, "x");
    expect_numerical(given.residual.grad(), f, given.residual, given.gy, "residual");
    expect_numerical(given.weight.gradient, f, given.weight.value, given.gy, "weight");
    expect_numerical(given.bias.gradient, f, given.bias.value, given.gy, "bias");
  }
}

TEST(Mlp, WithoutBiasOrResidual) {
  Case given(ActivationKind::swiglu, {3, 5}, 7, at::kDouble);
  Pass pass;
  const at::Tensor y = given.run(given.x, pass, nullptr, {});
  const Oracle expected = oracle(given);
  expect_close(y, expected.y - given.bias.value.detach() - given.residual.detach(), "y");
  run_backward(y, given.gy);
  expect_close(given.x.grad(), expected.x, "gradient of x");
  EXPECT_TRUE(given.bias.fresh);
}

TEST(Mlp, ASecondBackwardAddsToTheFirst) {
  Case given(ActivationKind::swiglu, {3, 5}, 7, at::kFloat);
  Pass pass;
  at::Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = given.run(pass);
    run_backward(y, given.gy);
    EXPECT_FALSE(given.weight.fresh);
  }
  expect_oracle(given, y, 2);
}

TEST(Mlp, DeferredWeightGradientsHaveTheSameBits) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const ActivationKind kind : kKinds) {
      SCOPED_TRACE(testing::Message() << c10::toString(dtype) << " activation " << static_cast<int>(kind));
      Case now(kind, {10, 13}, 45, dtype), later(kind, {10, 13}, 45, dtype);
      Pass split;
      split.defer_weights = true;
      for (int i = 0; i < 2; ++i) {
        Pass pass;
        run_backward(now.run(pass), now.gy);
        run_backward(later.run(split), later.gy);
        EXPECT_EQ(later.weight.fresh, i == 0) << "nothing is added before the queue runs";
        EXPECT_EQ(later.bias.fresh, i == 0);
        run_deferred(split);
        expect_same_bits(later.weight.gradient, now.weight.gradient, "weight");
        expect_same_bits(later.bias.gradient, now.bias.gradient, "bias");
        expect_same_bits(later.x.grad(), now.x.grad(), "x");
      }
    }
  }
}

TEST(Mlp, KeepsItsInputAlone) {
  for (const ActivationKind kind : kKinds) {
    Case given(kind, {4, 6}, 32, at::kFloat);
    Pass pass;
    const std::int64_t before = LiveBytes::instance().now();
    const at::Tensor y = given.run(pass);
    EXPECT_EQ(LiveBytes::instance().now() - before, static_cast<std::int64_t>(y.nbytes()));
  }
}

TEST(Mlp, NothingIsDoneForWhatNeedsNoGradient) {
  for (const ActivationKind kind : kKinds) {
    Case frozen(kind, {3, 5}, 7, at::kDouble);
    const Oracle expected = oracle(frozen);
    frozen.weight = make_frozen(frozen.weight.value);
    Pass pass;
    run_backward(frozen.run(pass), frozen.gy);
    expect_close(frozen.x.grad(), expected.x, "gradient of x under a frozen weight");
    expect_close(frozen.bias.gradient, expected.bias, "gradient of bias");
    EXPECT_TRUE(frozen.weight.fresh);

    Case constant(kind, {3, 5}, 7, at::kDouble);
    constant.x.requires_grad_(false);
    run_backward(constant.run(pass), constant.gy);
    expect_close(constant.weight.gradient, expected.weight, "gradient of weight for a constant input");
    expect_close(constant.bias.gradient, expected.bias, "gradient of bias for a constant input");
  }
}

TEST(Mlp, WithoutGradModeThereIsNoGraphAndTheSameValue) {
  Case given(ActivationKind::gelu, {3, 5}, 7, at::kFloat);
  Pass pass;
  const at::Tensor expected = given.run(pass);
  at::NoGradGuard no_grad;
  const at::Tensor y = given.run(pass);
  EXPECT_FALSE(y.requires_grad());
  expect_same_bits(y, expected, "y");
}

TEST(ActivationKind, PlainFunctionsAgreeWithTheKernels) {
  at::NoGradGuard no_grad;
  for (const ActivationKind kind : kKinds) {
    const at::Tensor x = random_tensor({9, 26}, 1).mul_(3);
    const at::Tensor d = random_tensor({9, activation_width(kind, 26)}, 2);
    expect_close(activate(kind, x), plain_activate(kind, x), 1e-13, 1e-14, "activation");
    const ActivationGradient plain = plain_activation_gradient(kind, x, d, true);
    const ActivationGradient fused = activation_gradient(kind, x, d.clone(), true);
    expect_close(fused.d_x, plain.d_x, 1e-13, 1e-14, "gradient");
    expect_same_bits(fused.activation, activate(kind, x), "activation of the gradient");
    EXPECT_FALSE(activation_gradient(kind, x, d.clone(), false).activation.defined());
  }
}

struct Results {
  at::Tensor activation, d_x, again;
};

// Every kernel of a table on one row of x.
template <class T>
Results run_kernels(kernels::Isa isa, ActivationKind kind, const at::Tensor& x, const at::Tensor& d) {
  const auto table = kernels::kernels_of<kernels::ActivationKernels<T>>(isa);
  Results out = {at::empty_like(d), at::empty_like(x), at::empty_like(d)};
  T* const to = out.activation.mutable_data_ptr<T>();
  T* const d_x = out.d_x.mutable_data_ptr<T>();
  T* const again = out.again.mutable_data_ptr<T>();
  const T* const from = x.const_data_ptr<T>();
  const T* const d_from = d.const_data_ptr<T>();
  if (kind == ActivationKind::swiglu) {
    table.swiglu(to, from, 1, d.numel());
    table.swiglu_gradient(d_x, again, from, d_from, 1, d.numel());
  } else if (kind == ActivationKind::relu) {
    table.relu(to, from, d.numel());
    table.relu_gradient(d_x, again, from, d_from, d.numel());
  } else if (kind == ActivationKind::silu) {
    table.silu(to, from, d.numel());
    table.silu_gradient(d_x, again, from, d_from, d.numel());
  } else if (kind == ActivationKind::gelu) {
    table.gelu(to, from, d.numel());
    table.gelu_gradient(d_x, again, from, d_from, d.numel());
  } else {
    table.gelu_tanh(to, from, d.numel());
    table.gelu_tanh_gradient(d_x, again, from, d_from, d.numel());
  }
  return out;
}

// On a fine grid over everything that does not saturate, with gates and ups of all sizes.
TEST(ActivationKernels, EveryInstructionSetIsAccurate) {
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (const ActivationKind kind : kKinds) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(isa) << " activation "
                                        << static_cast<int>(kind) << " " << c10::toString(dtype));
        const at::Tensor grid = at::linspace(-12, 12, 20001, at::kDouble).to(dtype);
        const at::Tensor x = kind == ActivationKind::swiglu ? at::cat({grid, at::cos(grid * 7)}) : grid;
        const at::Tensor d = at::ones_like(grid);
        const at::Tensor exact = x.to(at::kDouble).unsqueeze(0).requires_grad_();
        const at::Tensor expected = formula(kind, exact);
        run_backward(expected, at::ones_like(expected));
        const Results out =
            dtype == at::kFloat ? run_kernels<float>(isa, kind, x, d) : run_kernels<double>(isa, kind, x, d);
        const double bound = dtype == at::kFloat ? 4e-7 : 1e-14;
        expect_close(out.activation, expected[0], bound, bound, "activation");
        expect_close(out.d_x, exact.grad()[0], 2 * bound, 2 * bound, "gradient");
        expect_same_bits(out.again, out.activation, "activation of the gradient");
      }
    }
  }
}

TEST(ActivationKernels, SaturateWithoutNaNAndPassNaNOn) {
  const at::Tensor x = at::tensor({-1e30f, -200.0f, -90.0f, 90.0f, 200.0f, 1e4f, std::nanf("")});
  const at::Tensor d = at::ones_like(x);
  for (const kernels::Isa isa : {kernels::Isa::plain, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (!kernels::supported(isa)) continue;
    for (const ActivationKind kind :
         {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu, ActivationKind::silu}) {
      const Results out = run_kernels<float>(isa, kind, x, d);
      const at::Tensor limits = at::tensor({0.0f, 0.0f, 0.0f, 90.0f, 200.0f, 1e4f});
      expect_close(out.activation.narrow(0, 1, 5), limits.narrow(0, 1, 5), 1e-6, 1e-6, "activation");
      expect_close(out.d_x.narrow(0, 1, 4), limits.gt(0).to(at::kFloat).narrow(0, 1, 4), 1e-6, 1e-6, "gradient");
      EXPECT_TRUE(out.activation[6].isnan().item<bool>());
      EXPECT_TRUE(kind == ActivationKind::relu || out.d_x[6].isnan().item<bool>());
    }
  }
}

}  // namespace mlp_test
}  // namespace orthant::nn
