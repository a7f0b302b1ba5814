// Products with weights, their biases and what is added to them, by programs.
#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::linear_test {

struct Parts {
  bool bias = true;
  bool residual = true;
};

// `shape`: [rows, sequence] of tokens, or [rows].
UnitCase linear_case(const std::vector<std::int64_t>& shape, std::int64_t in, std::int64_t out, Parts parts = {}) {
  UnitCase given(shape[0], shape.size() > 1 ? shape[1] : 1);
  const auto sized = [&](std::int64_t last) {
    auto sizes = shape;
    sizes.push_back(last);
    return sizes;
  };
  const Value x = given.input("x", random_tensor(sized(in), 1));
  ops::LinearParameters parameters{.weight = given.parameter("weight", random_tensor({out, in}, 4)), .out = out};
  if (parts.bias) parameters.bias = given.parameter("bias", random_tensor({out}, 5));
  Value y = ops::linear(given.recorder, x, parameters);
  if (parts.residual) {
    y = ops::add(given.recorder, y, given.input("residual", random_tensor(sized(out), 2)));
  }
  given.output(y, random_tensor(sized(out), 3));
  return given;
}

at::Tensor formula(const Named& given, const nn::Pass& /*pass*/) {
  at::Tensor y = at::matmul(given.at("x"), given.at("weight").t());
  if (given.contains("bias")) y = y + given.at("bias");
  return given.contains("residual") ? y + given.at("residual") : y;
}

TEST(Linear, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> shapes = {{6}, {1}, {3, 5}, {8, 3}, {0}, {0, 5}, {20, 30}, {600}};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& shape : shapes) {
      SCOPED_TRACE(testing::Message() << "[" << at::IntArrayRef(shape) << "]");
      expect_formula(linear_case(shape, 13, 37), formula, dtype);
    }
  }
}

TEST(Linear, WithoutBiasOrResidual) {
  for (const bool bias : {false, true}) {
    for (const bool residual : {false, true}) {
      expect_formula(linear_case({3, 5}, 7, 9, {bias, residual}), formula, at::kDouble);
    }
  }
}

TEST(Linear, GradientsAreThoseOfCentralDifferences) {
  expect_central_differences(linear_case({2, 3}, 4, 5));
}

TEST(Linear, KeepsItsInputForTheWeightsGradientAlone) {
  const UnitCase given = linear_case({3, 5}, 7, 9);
  const auto kept = [&](const Way& way) { return UnitRun(given, way, at::kFloat).program().kept.size(); };
  EXPECT_EQ(kept({}), 1U);
  EXPECT_TRUE(UnitRun(given, {}, at::kFloat).kept().empty()) << "nothing but the unit's input";
  EXPECT_EQ(kept({.frozen = {"weight"}}), 0U);
}

TEST(Linear, TheResidualsGradientIsNotCopied) {
  const UnitCase given = linear_case({3, 5}, 7, 9);
  const Program program = UnitRun(given, {}, at::kFloat).program();
  EXPECT_EQ(program.gradients[1], program.seeds[0]) << to_string(program, UnitSizes{});
}

TEST(Linear, SumsASharedInputsGradients) {
  UnitCase given(3, 5);
  const Value x = given.input("x", random_tensor({3, 5, 7}, 1));
  const auto linear = [&](const std::string& name, std::uint64_t seed) {
    return ops::linear(given.recorder, x, {.weight = given.parameter(name, random_tensor({9, 7}, seed)), .out = 9});
  };
  const Value first = linear("first", 4), second = linear("second", 5);
  given.output(ops::add(given.recorder, first, second), random_tensor({3, 5, 9}, 3));
  const Formula sum = [](const Named& t, const nn::Pass&) {
    return at::matmul(t.at("x"), (t.at("first") + t.at("second")).t());
  };
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) expect_formula(given, sum, dtype);
}

}  // namespace orthant::test::linear_test
