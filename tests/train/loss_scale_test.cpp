// The loss scale alone: when it falls, when it grows, where it ends, and that its state carries on.
#include "orthant/train/loss_scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace orthant {
namespace loss_scale_test {

constexpr LossScaleOptions kQuick = {.dynamic = true, .initial = 1024, .growth = 4, .backoff = 0.25, .interval = 3};

void step(LossScale& scale, bool finite) {
  scale.update(at::scalar_tensor(finite, at::kBool));
}

double value_of(const LossScale& scale) {
  return scale.value().item<double>();
}

TEST(LossScale, IsDynamicWhereSomethingIsFloat16) {
  const LossScaleOptions dynamic = {.dynamic = true, .initial = 65536};
  EXPECT_EQ(default_loss_scale({DType::float32, DType::float16, DType::float32}), dynamic);
  EXPECT_EQ(default_loss_scale({DType::float32, DType::float32, DType::float16}), dynamic);
  EXPECT_EQ(default_loss_scale({DType::float32, DType::bfloat16, DType::float32}), LossScaleOptions());
  EXPECT_EQ(default_loss_scale({}), LossScaleOptions());
}

TEST(LossScale, GrowsAfterAnIntervalOfGoodSteps) {
  LossScale scale(kQuick, at::kCPU);
  for (const double expected : {1024, 1024, 4096, 4096, 4096, 16384}) {
    step(scale, true);
    EXPECT_EQ(value_of(scale), expected);
  }
  EXPECT_EQ(scale.state(), (LossScale::State{16384, 0}));
}

TEST(LossScale, FallsAtOnceAndCountsAnew) {
  LossScale scale(kQuick, at::kCPU);
  step(scale, true);
  step(scale, true);
  EXPECT_EQ(scale.state(), (LossScale::State{1024, 2}));
  step(scale, false);
  EXPECT_EQ(scale.state(), (LossScale::State{256, 0}));
  step(scale, true);
  step(scale, true);
  EXPECT_EQ(value_of(scale), 256) << "the good steps before the bad one count no more";
  step(scale, true);
  EXPECT_EQ(value_of(scale), 1024);
}

TEST(LossScale, EndsAtOneAndAtItsBound) {
  LossScale scale(kQuick, at::kCPU);
  for (int i = 0; i < 10; ++i) step(scale, false);
  EXPECT_EQ(value_of(scale), 1);
  for (int i = 0; i < 100; ++i) step(scale, true);
  EXPECT_EQ(value_of(scale), kMostLossScale);
}

TEST(LossScale, OneThatBeganAboveTheBoundStaysUntilItOverflows) {
  auto options = kQuick;
  options.initial = std::ldexp(1.0, 40);
  LossScale scale(options, at::kCPU);
  for (int i = 0; i < 6; ++i) step(scale, true);
  EXPECT_EQ(value_of(scale), options.initial);
  step(scale, false);
  EXPECT_EQ(value_of(scale), options.initial / 4);
}

TEST(LossScale, CarriesOnFromItsState) {
  LossScale first(kQuick, at::kCPU);
  for (const bool finite : {true, false, true, true}) step(first, finite);
  LossScale second(kQuick, at::kCPU);
  second.set_state(first.state());
  for (const bool finite : {true, true, false, true}) {
    step(first, finite);
    step(second, finite);
    EXPECT_EQ(second.state(), first.state());
  }
}

TEST(LossScale, AFixedOneNeverChanges) {
  LossScale scale({.initial = 8}, at::kCPU);
  step(scale, false);
  scale.set_state({4, 1});
  EXPECT_EQ(value_of(scale), 8);
  EXPECT_EQ(scale.state(), (LossScale::State{8, 0}));
  LossScale none({}, at::kCPU);
  step(none, false);
  EXPECT_FALSE(none.value().defined()) << "a scale of 1 costs nothing";
  EXPECT_EQ(none.state(), (LossScale::State{1, 0}));
}

TEST(LossScale, MayMendAnOverflowOfGradientsAlone) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto mends = [](const LossScale& scale, double loss, double norm) {
    return scale.may_mend(at::full({1}, loss, at::kDouble), at::full({1}, norm, at::kDouble)).item<double>() == 1;
  };
  const LossScale dynamic(kQuick, at::kCPU);
  EXPECT_TRUE(mends(dynamic, 2, infinity));
  EXPECT_TRUE(mends(dynamic, 2, std::nan("")));
  EXPECT_FALSE(mends(dynamic, 2, 3));
  EXPECT_FALSE(mends(dynamic, infinity, infinity)) << "the forward overflowed: no scale helps";
  EXPECT_FALSE(mends(LossScale({.dynamic = true, .initial = 1}, at::kCPU), 2, infinity)) << "it cannot fall";
  EXPECT_FALSE(mends(LossScale({.initial = 8}, at::kCPU), 2, infinity)) << "it does not fall";
}

}  // namespace loss_scale_test
}  // namespace orthant
