#include "orthant/data/text_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace orthant {
namespace text_progress_test {

constexpr std::int64_t kMiB = 1 << 20;

TEST(TextProgress, ALineSaysHowFarHowFastAndHowLong) {
  const TextProgress progress{
      .bytes = 30 * kMiB, .total_bytes = 120 * kMiB, .first_byte = 10 * kMiB, .documents = 5, .tokens = 7100000};
  EXPECT_EQ(text_progress_line(progress, 2, -1, false), "tokenizing  30 MiB/120 MiB  10 MiB/s  eta 9 s  7.1M tokens");
  EXPECT_EQ(text_progress_line(progress, 2, 70, false),
            "tokenizing  [##......]  30 MiB/120 MiB  10 MiB/s  eta 9 s  7.1M tokens");
  for (int width = 0; width < 120; ++width) {
    EXPECT_LE(std::ssize(text_progress_line(progress, 2, width, false)), width);
  }
}

TEST(TextProgress, ATerminalGetsOneLiveLineAndALogFewLines) {
  double now = 0;
  const auto run = [&](bool terminal) {
    std::ostringstream out;
    TextProgressOptions options{.clock_seconds = [&] { return now; }};
    if (terminal) options.terminal_width = [] { return 60; };
    TextProgressReport report(out, options);
    for (int i = 1; i <= 300; ++i) {
      now += 0.1;
      report.show({.bytes = i * kMiB, .total_bytes = 300 * kMiB});
    }
    report.finish();
    return out.str();
  };
  const auto live = run(true);
  EXPECT_EQ(std::ranges::count(live, '\n'), 1);
  EXPECT_GT(std::ranges::count(live, '\r'), 100);
  const auto log = run(false);
  EXPECT_EQ(log.find('\r'), std::string::npos);
  EXPECT_GE(std::ranges::count(log, '\n'), 2);
  EXPECT_LE(std::ranges::count(log, '\n'), 4);
  EXPECT_NE(log.find("300 MiB/300 MiB"), std::string::npos) << log;
}

}  // namespace text_progress_test
}  // namespace orthant
