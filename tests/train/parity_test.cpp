// What counts as the same numbers: bits, rounding, and defects that must be found and named.
#include "orthant/train/parity.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error_text.h"

namespace orthant {
namespace parity_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor numbers(double first) {
  return (at::arange(6, at::kDouble).reshape({2, 3}) + first).sin();
}

// Model order is not the order of the alphabet.
ParitySide some_side() {
  ParitySide side;
  side.names = {"embed.table", "body.weight", "body.bias", "attic.weight"};
  side.losses = {2.5, 2.25, 2.0};
  side.grad_norms = {1.5, 1.25, 1.0};
  double first = 1;
  for (const auto& name : side.names) {
    side.gradients[name] = numbers(first);
    side.first_gradients[name] = numbers(first);
    side.weights[name] = numbers(first + 0.5);
    first += 1;
  }
  return side;
}

TEST(Parity, EqualSidesAreEqualInEveryBit) {
  const auto result = compare_sides(some_side(), some_side(), 0);
  EXPECT_TRUE(result.pass);
  EXPECT_TRUE(result.bitwise);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.grad_norm, 0);
  EXPECT_EQ(result.gradients, 0);
  EXPECT_EQ(result.weights, 0);
  EXPECT_EQ(result.first_difference, "");
  EXPECT_EQ(result.likely_factor, 1);
  EXPECT_NE(parity_text(result).find("equal: every bit\n"), std::string::npos) << parity_text(result);
}

TEST(Parity, RoundingPassesWithoutBeingBitwise) {
  auto side = some_side();
  side.gradients["body.bias"].mul_(1 + 1e-14);
  const auto result = compare_sides(side, some_side(), 1e-10);
  EXPECT_TRUE(result.pass);
  EXPECT_FALSE(result.bitwise);
  EXPECT_GT(result.gradients, 0);
  EXPECT_LT(result.gradients, 1e-13);
  EXPECT_EQ(result.worst_parameter, "body.bias");
  EXPECT_EQ(result.first_difference, "");
  EXPECT_NE(parity_text(result).find("equal within 1.0e-10\n"), std::string::npos) << parity_text(result);
  EXPECT_FALSE(compare_sides(side, some_side(), 1e-16).pass) << "the same difference beyond another tolerance";
}

TEST(Parity, OneDifferentBitAnywhereIsNotBitwise) {
  const auto next = [](double value) { return std::nextafter(value, 10.0); };
  const auto bitwise = [](auto change) {
    auto side = some_side();
    change(side);
    return compare_sides(side, some_side(), 1e-10).bitwise;
  };
  EXPECT_FALSE(bitwise([&](ParitySide& s) { s.losses[2] = next(2.0); }));
  EXPECT_FALSE(bitwise([&](ParitySide& s) { s.grad_norms[0] = next(1.5); }));
  EXPECT_FALSE(bitwise([&](ParitySide& s) { s.gradients["embed.table"][1][2] += 1e-16; }));
  EXPECT_FALSE(bitwise([&](ParitySide& s) {
    auto& weights = s.weights["attic.weight"];
    weights[0][0].fill_(next(weights[0][0].item<double>()));
  }));
  EXPECT_FALSE(bitwise([&](ParitySide& s) { s.weights["body.bias"] = s.weights["body.bias"].to(at::kFloat); }));
}

TEST(Parity, AFactorOfTwoInOneGradientIsFoundNamedAndGuessed) {
  auto side = some_side();
  side.gradients["body.weight"].mul_(2);
  side.first_gradients["body.weight"].mul_(2);
  const auto result = compare_sides(side, some_side(), 1e-10, {{"dp", 2}, {"pp", 4}, {"tp", 2}});
  EXPECT_FALSE(result.pass);
  EXPECT_NEAR(result.gradients, 1, 1e-12);
  EXPECT_EQ(result.weights, 0);
  EXPECT_EQ(result.worst_parameter, "body.weight");
  EXPECT_EQ(result.first_difference, "body.weight");
  EXPECT_NEAR(result.likely_factor, 2, 1e-12);
  const auto text = parity_text(result);
  EXPECT_NE(text.find("DIFFERENT beyond 1.0e-10\n"), std::string::npos) << text;
  EXPECT_NE(text.find("worst parameter: body.weight\n"), std::string::npos) << text;
  EXPECT_EQ(parity_json(result)["likely_cause"], result.likely_cause);
  EXPECT_NE(text.find("first gradient that differs: body.weight, x2, as for dp or tp: a sum is done twice, or"),
            std::string::npos)
      << text;
}

TEST(Parity, AFactorIsExplainedByWhatThereIsAsManyOf) {
  const std::vector<Suspect> all = {{"dp", 2}, {"tp", 3}, {"dp x tp", 6}, {"the microbatches", 3}};
  EXPECT_EQ(likely_cause(0.5, 1, all), "x0.5, as for dp: a sum is missing, or a mean is taken twice");
  EXPECT_EQ(likely_cause(3, 1, all), "x3, as for tp or the microbatches: a sum is done twice, or a mean is not taken");
  EXPECT_EQ(likely_cause(6, 1, all), "x6, as for dp x tp: a sum is done twice, or a mean is not taken");
  EXPECT_EQ(likely_cause(5, 1, all),
            "x5, as for something there are 5 of: a sum is done twice, or a mean is not taken");
  EXPECT_EQ(likely_cause(1.3, 1, all), "it is 1.3 times the right one");
  EXPECT_EQ(likely_cause(0, 1, all), "x0: it is missing, or has the wrong sign");
  EXPECT_EQ(likely_cause(kNan, 0.53, all), "by no single factor, x0.53 in the mean: perhaps a sum over dp is missing");
  EXPECT_EQ(likely_cause(kNan, -0.5, all),
            "by no single factor: a sum over an axis is missing, or other rows were summed");
  EXPECT_EQ(likely_cause(kNan, 0.75, all),
            "by no single factor: a sum over an axis is missing, or other rows were summed");
}

TEST(Parity, SuspectsAreAxesTheirProductsAndCounts) {
  RunConfig tested;
  tested.mesh = Mesh({{Axis::pp, 2}, {Axis::dp, 3}, {Axis::tp, 4}});
  tested.trainer.microbatches = 5;
  tested.global_batch_size = 30;
  tested.data.sequence_length = 7;
  const std::vector<Suspect> expected = {{"pp", 2},
                                         {"dp", 3},
                                         {"pp x dp", 6},
                                         {"tp", 4},
                                         {"pp x tp", 8},
                                         {"dp x tp", 12},
                                         {"pp x dp x tp", 24},
                                         {"the microbatches", 5},
                                         {"the rows of a step", 30},
                                         {"the positions of a step", 210}};
  EXPECT_EQ(suspects(tested, tested), expected) << "each once, though both sides have them";
}

TEST(Parity, TheFirstDifferenceIsTheFirstInModelOrder) {
  auto side = some_side();
  side.gradients["attic.weight"].mul_(8);  // worse, and before it in the alphabet
  side.first_gradients["attic.weight"].mul_(8);
  side.gradients["body.bias"].mul_(0.5);
  side.first_gradients["body.bias"].mul_(0.5);
  const auto result = compare_sides(side, some_side(), 1e-10);
  EXPECT_EQ(result.worst_parameter, "attic.weight");
  EXPECT_EQ(result.first_difference, "body.bias");
  EXPECT_NEAR(result.likely_factor, 0.5, 1e-12);
}

TEST(Parity, NoFactorIsGuessedForADifferenceThatIsNone) {
  auto side = some_side();
  side.gradients["body.weight"][0][0] += 1;
  side.first_gradients["body.weight"][0][0] += 1;
  const auto result = compare_sides(side, some_side(), 1e-10);
  EXPECT_EQ(result.first_difference, "body.weight");
  EXPECT_TRUE(std::isnan(result.likely_factor));
  EXPECT_EQ(parity_text(result).find("times"), std::string::npos) << parity_text(result);
}

TEST(Parity, EachKindOfNumberCanFail) {
  const auto failed = [](auto change) {
    auto side = some_side();
    change(side);
    const auto result = compare_sides(side, some_side(), 1e-3);
    EXPECT_FALSE(result.bitwise);
    return !result.pass;
  };
  EXPECT_TRUE(failed([](ParitySide& s) { s.losses[1] *= 1.01; }));
  EXPECT_TRUE(failed([](ParitySide& s) { s.grad_norms[2] *= 1.01; }));
  EXPECT_TRUE(failed([](ParitySide& s) { s.gradients["embed.table"].mul_(1.01); }));
  EXPECT_TRUE(failed([](ParitySide& s) { s.weights["attic.weight"].mul_(1.01); }));
}

TEST(Parity, NumbersThatAreNotFiniteFailEvenOnBothSides) {
  for (const double bad : {kNan, kInfinity}) {
    for (const bool both : {false, true}) {
      for (const int place : {0, 1, 2, 3}) {
        if (both && bad == kInfinity && place < 2) continue;  // equal infinite losses are equal numbers
        auto side = some_side();
        auto reference = some_side();
        for (auto* one : {&side, &reference}) {
          if (one == &reference && !both) continue;
          if (place == 0) one->losses[1] = bad;
          if (place == 1) one->grad_norms[1] = bad;
          if (place == 2) one->gradients["body.weight"][1][1] = bad;
          if (place == 3) one->weights["body.weight"][1][1] = bad;
        }
        EXPECT_FALSE(compare_sides(side, reference, 1e-1).pass) << bad << " both " << both << " place " << place;
      }
    }
  }
}

TEST(Parity, ANanInTheReferenceAloneFailsAndIsNamed) {
  auto reference = some_side();
  reference.gradients["body.weight"][0][1] = kNan;
  const auto result = compare_sides(some_side(), reference, 1e-1);
  EXPECT_FALSE(result.pass);
  EXPECT_EQ(result.gradients, kInfinity);
  EXPECT_EQ(result.worst_parameter, "body.weight");
  EXPECT_EQ(result.first_difference, "body.weight");
  EXPECT_TRUE(parity_json(result)["max_relative_error"]["gradients"].is_null()) << "JSON knows no infinity";
}

// See Note [Relative error]: the gradient of an attention key's bias is zero but for rounding.
TEST(Parity, AGradientThatIsZeroButForRoundingDoesNotDominate) {
  auto side = some_side();
  auto reference = some_side();
  side.gradients["body.bias"] = numbers(1) * 1e-17;
  reference.gradients["body.bias"] = numbers(2) * -1e-17;
  auto result = compare_sides(side, reference, 1e-10);
  EXPECT_TRUE(result.pass) << parity_text(result);
  EXPECT_LT(result.gradients, 1e-14);
  reference.gradients["body.bias"].zero_();
  EXPECT_TRUE(compare_sides(side, reference, 1e-10).pass) << "exactly zero in the reference";
  side.gradients["body.bias"] = numbers(1) * 1e-8;  // not rounding: a hundredth of the largest is its measure
  result = compare_sides(side, reference, 1e-10);
  EXPECT_FALSE(result.pass);
  EXPECT_EQ(result.first_difference, "body.bias");
  EXPECT_NEAR(result.gradients, 1e-6, 0.2e-6);
}

TEST(Parity, SmallGradientsAreMeasuredByTheirOwnSize) {
  auto side = some_side();
  auto reference = some_side();
  for (auto* one : {&side, &reference}) one->gradients["body.bias"].mul_(0.05);
  side.gradients["body.bias"].mul_(1.5);
  EXPECT_NEAR(compare_sides(side, reference, 1e-3).gradients, 0.5, 1e-12);
}

TEST(Parity, SidesOfDifferentModelsAreRefused) {
  auto other = some_side();
  other.gradients["body.bias"] = at::zeros({4}, at::kDouble);
  auto text = error_text<ConfigError>([&] { compare_sides(other, some_side(), 1e-3); });
  EXPECT_NE(text.find("parameter body.bias is not alike in both models"), std::string::npos) << text;
  EXPECT_NE(text.find("compare configs of one model"), std::string::npos) << text;
  other.gradients.erase("body.bias");
  text = error_text<ConfigError>([&] { compare_sides(other, some_side(), 1e-3); });
  EXPECT_NE(text.find("parameter body.bias is not alike in both models"), std::string::npos) << text;
  text = error_text<ConfigError>([&] { compare_sides(some_side(), other, 1e-3); });
  EXPECT_NE(text.find("parameter body.bias is not in the reference"), std::string::npos) << text;
}

// --bitwise turns a pass within rounding into a failure.
TEST(Parity, TheTextTellsDifferentBitsFromRounding) {
  auto side = some_side();
  side.gradients["body.bias"].mul_(1 + 1e-14);
  auto result = compare_sides(side, some_side(), 1e-10);
  result.pass = result.bitwise;
  EXPECT_EQ(parity_text(result).find("DIFFERENT bits, within rounding\n"), 0U) << parity_text(result);
}

TEST(Parity, TheToleranceGrowsWithTheRounding) {
  EXPECT_LT(parity_tolerance(DType::float64), parity_tolerance(DType::float32));
  EXPECT_LT(parity_tolerance(DType::float32), parity_tolerance(DType::bfloat16));
  EXPECT_EQ(parity_tolerance(DType::float64), 1e-10);
  EXPECT_EQ(parity_tolerance(Precision{.compute = DType::bfloat16}), parity_tolerance(DType::bfloat16));
  EXPECT_EQ(parity_tolerance(Precision{}), parity_tolerance(DType::float32));
  EXPECT_EQ(parity_tolerance(Precision{.tf32 = true}), parity_tolerance(DType::float16));
}

TEST(Parity, TheJsonHoldsTheResult) {
  auto side = some_side();
  side.gradients["body.weight"].mul_(2);
  side.first_gradients["body.weight"].mul_(2);
  const auto json = parity_json(compare_sides(side, some_side(), 1e-10));
  EXPECT_EQ(json["pass"], false);
  EXPECT_EQ(json["bitwise"], false);
  EXPECT_EQ(json["worst_parameter"], "body.weight");
  EXPECT_EQ(json["tolerance"], 1e-10);
  EXPECT_NEAR(json["max_relative_error"]["gradients"].get<double>(), 1, 1e-12);
  EXPECT_EQ(json["max_relative_error"]["loss"], 0.0);
}

}  // namespace parity_test
}  // namespace orthant
