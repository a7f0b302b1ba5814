// RMSNorm and LayerNorm by programs: alone, behind a dropout and a sum, and beside a residual that is handed on.
#include <ATen/Parallel.h>

#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::norm_test {

constexpr double kEps = 1e-5;
constexpr double kP = 0.3;

enum class Kind { rms, layer, add, dropped };  // the last two: LayerNorm of residual + x, x dropped or not
constexpr Kind kKinds[] = {Kind::rms, Kind::layer, Kind::add, Kind::dropped};

std::string name(Kind kind) {
  return kind == Kind::rms ? "rms" : kind == Kind::layer ? "layer" : kind == Kind::add ? "add" : "dropped";
}

bool has_residual(Kind kind) {
  return kind == Kind::add || kind == Kind::dropped;
}

// `handed_on`: what was normalised is added to the norm, too.
UnitCase norm_case(Kind kind, const std::vector<std::int64_t>& shape, bool handed_on = false) {
  UnitCase given(shape[0], shape.size() == 3 ? shape[1] : 1);
  const std::int64_t width = shape.back();
  Value sum = given.input("x", random_tensor(shape, 1) * 2 + 0.5);
  if (kind == Kind::dropped) sum = ops::dropout(given.recorder, sum, kP, "site");
  if (has_residual(kind)) sum = ops::add(given.recorder, sum, given.input("residual", random_tensor(shape, 2)));
  const std::string weight = given.parameter("weight", random_tensor({width}, 4));
  Value y;
  if (kind == Kind::rms) {
    y = ops::rms_norm(given.recorder, sum, weight, kEps);
  } else {
    y = ops::layer_norm(given.recorder, sum, weight, given.parameter("bias", random_tensor({width}, 5)), kEps);
  }
  given.output(handed_on ? ops::add(given.recorder, y, sum) : y, random_tensor(shape, 3));
  return given;
}

Formula formula_of(Kind kind, bool handed_on = false) {
  return [=](const Named& t, const nn::Pass& pass) {
    at::Tensor sum = t.at("x");
    if (kind == Kind::dropped) sum = sum * factors(pass, "site", kP, sum.sizes());
    if (has_residual(kind)) sum = sum + t.at("residual");
    const at::Tensor centred = kind == Kind::rms ? sum : sum - sum.mean(-1, true);
    at::Tensor y = centred / (centred.square().mean(-1, true) + kEps).sqrt() * t.at("weight");
    if (kind != Kind::rms) y = y + t.at("bias");
    return handed_on ? y + sum : y;
  };
}

TEST(Norm, EqualsAutogradInEveryDtypeAndShape) {
  const std::vector<std::vector<std::int64_t>> shapes = {{6, 64}, {1, 1},     {3, 5, 37}, {2, 3, 256},
                                                         {0, 16}, {0, 3, 16}, {700, 19}};
  for (const Kind kind : kKinds) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const auto& shape : shapes) {
        SCOPED_TRACE(testing::Message() << name(kind) << " [" << at::IntArrayRef(shape) << "]");
        expect_formula(norm_case(kind, shape), formula_of(kind), dtype);
      }
    }
  }
}

TEST(Norm, OfManyTokensEqualsAutograd) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t width : {37, 256}) {
      SCOPED_TRACE(name(kind));
      expect_formula(norm_case(kind, {30, 20, width}), formula_of(kind), at::kFloat);
    }
  }
}

TEST(Norm, GradientsAreThoseOfCentralDifferences) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name(kind));
    expect_central_differences(norm_case(kind, {2, 3, 5}));
    expect_central_differences(norm_case(kind, {2, 3, 5}, /*handed_on=*/true));
  }
}

// The gradient of what is handed on is added to the norm's before the dropout in front of both.
TEST(Norm, AddsTheGradientOfWhatItHandsOn) {
  for (const Kind kind : kKinds) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(name(kind));
      expect_formula(norm_case(kind, {3, 5, 37}, /*handed_on=*/true), formula_of(kind, true), dtype);
    }
  }
}

TEST(Norm, KeepsWhatItNormalisedAndItsStatistics) {
  using Names = std::vector<std::string>;
  const auto kept = [](Kind kind) { return UnitRun(norm_case(kind, {3, 5, 37}), {}, at::kFloat).kept(); };
  EXPECT_EQ(kept(Kind::rms), (Names{"statistics"})) << "beside its input";
  EXPECT_EQ(kept(Kind::layer), (Names{"statistics"}));
  EXPECT_EQ(kept(Kind::add), (Names{"statistics", "sum"}));
  EXPECT_EQ(kept(Kind::dropped), (Names{"statistics", "sum"}));
  const UnitCase given = norm_case(Kind::dropped, {3, 5, 37});
  EXPECT_EQ(UnitRun(given, {}, at::kFloat).program().kept.size(), 2U) << "neither x nor the residual";
}

TEST(Norm, WithoutDropoutBothAddendsShareOneGradient) {
  const Program program = UnitRun(norm_case(Kind::add, {3, 5, 37}), {}, at::kFloat).program();
  EXPECT_GE(program.gradients[0], 0);
  EXPECT_EQ(program.gradients[0], program.gradients[1]);
}

TEST(Norm, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<Result> results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    results.push_back(UnitRun(norm_case(Kind::dropped, {40, 50, 96}), {}, at::kFloat).run());
  }
  at::set_num_threads(threads);
  expect_same_result(results[1], results[0], "two threads");
}

}  // namespace orthant::test::norm_test
