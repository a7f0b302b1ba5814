#include "orthant/base/timeouts.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace orthant {
namespace timeouts_test {

Timeouts parsed(const std::string& text) {
  return parse_timeouts(text, "--timeout");
}

std::string refusal(const std::string& text) {
  return error_text<ConfigError>([&] { parsed(text); });
}

TEST(Timeouts, FindAHangInAStepSoonerThanOneElsewhere) {
  const Timeouts timeouts;
  EXPECT_LT(timeouts.of(JobPhase::step), timeouts.of(JobPhase::start));
  EXPECT_LT(timeouts.of(JobPhase::start), timeouts.of(JobPhase::save));
  EXPECT_EQ(timeouts.times(0.5).of(JobPhase::save), timeouts.save_seconds / 2);
}

TEST(ParseTimeouts, OneNumberIsForEveryPhase) {
  EXPECT_EQ(parsed("5"), Timeouts::all(5));
  EXPECT_EQ(parsed("0.25"), Timeouts::all(0.25));
}

TEST(ParseTimeouts, PhasesThatAreNotNamedKeepTheirDefault) {
  const Timeouts defaults;
  EXPECT_EQ(parsed("start=300,step=60,save=1800"), (Timeouts{300, 60, 1800}));
  EXPECT_EQ(parsed("step=7.5"), (Timeouts{defaults.start_seconds, 7.5, defaults.save_seconds}));
}

TEST(ParseTimeouts, ReadsWhatIsWritten) {
  EXPECT_EQ(to_string(Timeouts{300, 0.5, 900}), "start=300,step=0.5,save=900");
  EXPECT_EQ(parsed(to_string(Timeouts())), Timeouts());
}

TEST(ParseTimeouts, RefusesWhatIsNoNumberOfSeconds) {
  for (const char* text : {"0", "-1", "1e18", "nan", "inf", "ten", "", "5s", "5,6"}) {
    const auto told = refusal(text);
    EXPECT_NE(told.find("--timeout " + std::string(text) + " is not a number of seconds between 0 and 10000000"),
              std::string::npos)
        << told;
    EXPECT_NE(told.find("--timeout start=300,step=60,save=900"), std::string::npos) << told;
  }
  EXPECT_NE(refusal("step=0,save=5").find("--timeout step=0 is not a number"), std::string::npos);
  EXPECT_NE(refusal("step=").find("--timeout step= is not a number"), std::string::npos);
}

TEST(ParseTimeouts, RefusesUnknownAndRepeatedPhases) {
  EXPECT_NE(refusal("stap=5").find("there is no phase 'stap'"), std::string::npos);
  EXPECT_NE(refusal("stap=5").find("use --timeout step=5 (phases are start, step and save)"), std::string::npos);
  EXPECT_NE(refusal("step=5,step=6").find("names step twice"), std::string::npos);
  EXPECT_NE(refusal("step=5,6").find("there is no phase '6'"), std::string::npos);
  EXPECT_NE(refusal("step=5,").find("nothing comes after the last comma\n  fix: use --timeout step=5"),
            std::string::npos);
}

}  // namespace timeouts_test
}  // namespace orthant
