// The second half of an MLP by programs: activation, dropout where there is one, projection, residual.
#include <cmath>

#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::mlp_test {

const std::vector<std::string> kKinds = {"swiglu", "gelu", "gelu_tanh", "relu", "silu", "tanh"};

// `shape`: [rows, sequence] of tokens, or [rows].
UnitCase mlp_case(const std::string& kind, const std::vector<std::int64_t>& shape, std::int64_t inner, double p = 0,
                  bool bias_and_residual = true) {
  UnitCase given(shape[0], shape.size() > 1 ? shape[1] : 1);
  const auto sized = [&](std::int64_t last) {
    auto sizes = shape;
    sizes.push_back(last);
    return sizes;
  };
  const Value x = given.input("x", random_tensor(sized(kind == "swiglu" ? 2 * inner : inner), 1) * 2);
  const Value active = ops::activation(given.recorder, x, kind, p, "site");
  ops::LinearParameters down{.weight = given.parameter("weight", random_tensor({5, inner}, 4)), .out = 5};
  if (bias_and_residual) down.bias = given.parameter("bias", random_tensor({5}, 5));
  Value y = ops::linear(given.recorder, active, down);
  if (bias_and_residual) y = ops::add(given.recorder, y, given.input("residual", random_tensor(sized(5), 2)));
  given.output(y, random_tensor(sized(5), 3));
  return given;
}

at::Tensor activation(const std::string& kind, const at::Tensor& x) {
  if (kind == "gelu") return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
  if (kind == "gelu_tanh") return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))));
  if (kind == "relu") return x.clamp_min(0);
  if (kind == "silu") return x * at::sigmoid(x);
  if (kind == "tanh") return x.tanh();
  const auto halves = x.chunk(2, -1);
  return halves[0] * at::sigmoid(halves[0]) * halves[1];
}

Formula formula_of(const std::string& kind, double p = 0) {
  return [=](const Named& t, const nn::Pass& pass) {
    at::Tensor middle = activation(kind, t.at("x"));
    if (p > 0) middle = middle * factors(pass, "site", p, middle.sizes());
    const at::Tensor y = at::matmul(middle, t.at("weight").t());
    return t.contains("bias") ? y + t.at("bias") + t.at("residual") : y;
  };
}

TEST(Mlp, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> shapes = {{6}, {1}, {3, 5}, {0, 5}, {300}, {10, 13}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& kind : kKinds) {
      for (const auto& shape : shapes) {
        SCOPED_TRACE(testing::Message() << kind << " [" << at::IntArrayRef(shape) << "]");
        expect_formula(mlp_case(kind, shape, 37), formula_of(kind), dtype);
      }
    }
  }
}

TEST(Mlp, DropsBetweenActivationAndProjection) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& kind : kKinds) {
      if (kind == "tanh") continue;  // has no dropout of its own
      SCOPED_TRACE(kind);
      expect_formula(mlp_case(kind, {3, 5}, 37, 0.3), formula_of(kind, 0.3), dtype);
      expect_formula(mlp_case(kind, {6}, 37, 0.3), formula_of(kind, 0.3), dtype);
    }
  }
}

TEST(Mlp, GradientsAreThoseOfCentralDifferences) {
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind);
    expect_central_differences(mlp_case(kind, {2, 3}, 4));
  }
}

TEST(Mlp, WithoutBiasOrResidual) {
  expect_formula(mlp_case("swiglu", {3, 5}, 7, 0, /*bias_and_residual=*/false), formula_of("swiglu"), at::kDouble);
}

// The activation is made again: by its own backward where that runs before the weight's gradient, else from its input.
TEST(Mlp, KeepsItsInputAlone) {
  for (const auto& kind : kKinds) {
    for (const double p : {0.0, 0.3}) {
      const UnitCase given = mlp_case(kind, {4, 6}, 32, kind == "tanh" ? 0 : p);
      const Program program = UnitRun(given, {}, at::kFloat).program();
      EXPECT_EQ(program.kept, std::vector<int>{program.inputs[0]}) << to_string(program, UnitSizes{});
      const auto count = [](const std::vector<Operation>& list) {
        return std::ranges::count(list, std::string("activation"), &Operation::name);
      };
      EXPECT_EQ(count(program.both), 0) << to_string(program, UnitSizes{});
      EXPECT_EQ(count(program.weight_part), 1) << to_string(program, UnitSizes{});
    }
  }
}

}  // namespace orthant::test::mlp_test
