#include "orthant/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error_text.h"

namespace orthant {
namespace lr_schedule_test {

using Kind = LrSchedule::Kind;

constexpr std::array<Kind, 4> kKinds = {Kind::linear, Kind::cosine, Kind::wsd, Kind::constant};

LrSchedule schedule(Kind kind) {
  return {.kind = kind, .peak = 0.8, .warmup_steps = 10, .total_steps = 110, .final_fraction = 0.25};
}

TEST(LrSchedule, WarmsUpInEqualStepsToThePeak) {
  for (Kind kind : kKinds) {
    for (int step = 1; step <= 10; ++step) {
      EXPECT_DOUBLE_EQ(schedule(kind).at(step), 0.8 * step / 10) << lr_schedule_name(kind) << " step " << step;
    }
  }
}

TEST(LrSchedule, LinearFollowsItsClosedForm) {
  const LrSchedule linear = schedule(Kind::linear);
  for (int step = 10; step <= 110; ++step) {
    EXPECT_NEAR(linear.at(step), 0.8 * (1 - 0.75 * (step - 10) / 100.0), 1e-15) << "step " << step;
  }
  EXPECT_DOUBLE_EQ(linear.at(110), 0.2);
}

TEST(LrSchedule, CosineFollowsItsClosedForm) {
  const LrSchedule cosine = schedule(Kind::cosine);
  for (int step = 10; step <= 110; ++step) {
    const double expected = 0.2 + 0.6 * 0.5 * (1 + std::cos(std::numbers::pi * (step - 10) / 100.0));
    EXPECT_NEAR(cosine.at(step), expected, 1e-15) << "step " << step;
  }
  EXPECT_DOUBLE_EQ(cosine.at(60), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(110), 0.2);
}

TEST(LrSchedule, WsdHoldsThePeakUntilItsDecline) {
  LrSchedule wsd = schedule(Kind::wsd);
  wsd.decay_steps = 40;
  EXPECT_DOUBLE_EQ(wsd.at(11), 0.8);
  EXPECT_DOUBLE_EQ(wsd.at(70), 0.8);
  EXPECT_DOUBLE_EQ(wsd.at(90), 0.5);
  EXPECT_DOUBLE_EQ(wsd.at(110), 0.2);
  wsd.decay_steps = 0;
  EXPECT_DOUBLE_EQ(wsd.at(109), 0.8);
}

TEST(LrSchedule, WsdDeclinesOverAFifthByDefault) {
  const LrSchedule wsd = schedule(Kind::wsd);  // 22 of 110 steps
  EXPECT_DOUBLE_EQ(wsd.at(88), 0.8);
  EXPECT_DOUBLE_EQ(wsd.at(99), 0.5);
  EXPECT_DOUBLE_EQ(wsd.at(110), 0.2);
}

TEST(LrSchedule, ConstantStaysAtThePeak) {
  for (int step : {10, 11, 110, 1000}) EXPECT_DOUBLE_EQ(schedule(Kind::constant).at(step), 0.8) << "step " << step;
}

TEST(LrSchedule, HoldsTheLastValuePastTheEnd) {
  for (Kind kind : {Kind::linear, Kind::cosine, Kind::wsd}) {
    EXPECT_DOUBLE_EQ(schedule(kind).at(111), 0.2) << lr_schedule_name(kind);
    EXPECT_DOUBLE_EQ(schedule(kind).at(100000), 0.2) << lr_schedule_name(kind);
  }
}

TEST(LrSchedule, BeginsAtThePeakWithoutWarmUp) {
  for (Kind kind : kKinds) {
    LrSchedule without = schedule(kind);
    without.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(without.at(1), 0.8) << lr_schedule_name(kind);
    without.warmup_steps = 1;
    EXPECT_DOUBLE_EQ(without.at(1), 0.8) << lr_schedule_name(kind);
    without.total_steps = 1;
    EXPECT_DOUBLE_EQ(without.at(1), 0.8) << lr_schedule_name(kind) << ": the only step learns";
  }
}

TEST(LrSchedule, NeverRisesAfterTheWarmUp) {
  for (Kind kind : kKinds) {
    for (int step = 10; step < 130; ++step) {
      EXPECT_LE(schedule(kind).at(step + 1), schedule(kind).at(step)) << lr_schedule_name(kind) << " step " << step;
    }
  }
}

TEST(LrSchedule, AWarmUpLongerThanTheRunKeepsItsSlope) {
  for (Kind kind : kKinds) {
    LrSchedule longer = schedule(kind);
    longer.total_steps = 5;
    EXPECT_DOUBLE_EQ(longer.at(5), 0.4) << lr_schedule_name(kind);
    EXPECT_NO_THROW(longer.check()) << lr_schedule_name(kind);
  }
}

TEST(LrSchedule, ReadsTheNamesItWrites) {
  for (Kind kind : kKinds) EXPECT_EQ(parse_lr_schedule(lr_schedule_name(kind)), kind);
}

TEST(LrSchedule, NamesTheNearestKind) {
  const std::string text = error_text<ConfigError>([] { parse_lr_schedule("cosin"); });
  EXPECT_NE(text.find("lr_schedule.kind: unknown schedule \"cosin\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean \"cosine\"?"), std::string::npos) << text;
}

TEST(LrSchedule, RefusesValuesNoCurveCanHave) {
  const auto refusal = [](auto change) {
    LrSchedule wrong = schedule(Kind::wsd);
    change(wrong);
    return error_text<ConfigError>([&] { wrong.check(); });
  };
  std::string text = refusal([](LrSchedule& s) { s.peak = std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_NE(text.find("optimizer.lr is nan: a learning rate is a finite number"), std::string::npos) << text;
  text = refusal([](LrSchedule& s) { s.warmup_steps = -1; });
  EXPECT_NE(text.find("lr_schedule.warmup_steps is -1"), std::string::npos) << text;
  text = refusal([](LrSchedule& s) { s.total_steps = 0; });
  EXPECT_NE(text.find("train.steps is 0"), std::string::npos) << text;
  text = refusal([](LrSchedule& s) { s.final_fraction = 1.5; });
  EXPECT_NE(text.find("lr_schedule.final_fraction is 1.5: a fraction of the peak lies in [0, 1]"), std::string::npos)
      << text;
  text = refusal([](LrSchedule& s) { s.decay_steps = 101; });
  EXPECT_NE(text.find("lr_schedule.decay_steps is 101: after a warm-up of 10 only 100 of 110 steps are left"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("set lr_schedule.decay_steps to at most 100"), std::string::npos) << text;
  EXPECT_NO_THROW(schedule(Kind::wsd).check());
}

}  // namespace lr_schedule_test
}  // namespace orthant
