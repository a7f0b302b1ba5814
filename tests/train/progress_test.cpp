#include "orthant/train/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

namespace orthant {
namespace progress_test {

StepMetrics at_step(std::int64_t step) {
  return {.step = step,
          .loss = 2.3412,
          .grad_norm = 0.8765,
          .step_seconds = 0.5,
          .samples_per_second = 32,
          .tokens_per_second = 12345,
          .peak_memory_bytes = 1288490189};
}

ProgressState state() {
  return {.metrics = at_step(25), .total_steps = 100, .eta_seconds = 184, .rate = ProgressRate::tokens};
}

// A display with a clock that the test turns.
struct Display {
  explicit Display(std::int64_t total_steps, int width = 0, std::int64_t first_step = 1)
      : progress(out, options(total_steps, width, first_step)) {}

  ProgressOptions options(std::int64_t total_steps, int width, std::int64_t first_step) {
    ProgressOptions result{.total_steps = total_steps, .first_step = first_step};
    if (width > 0) result.terminal_width = [width] { return width; };
    result.clock_seconds = [this] { return now; };
    return result;
  }

  std::int64_t count(std::string_view part) const {
    const std::string text = out.str();
    std::int64_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
    return found;
  }

  double now = 1000;
  std::ostringstream out;
  Progress progress;
};

std::string without_colour(std::string line) {
  for (const std::string code : {"\x1b[36m", "\x1b[0m"}) {
    if (const auto at = line.find(code); at != std::string::npos) line.erase(at, code.size());
  }
  return line;
}

TEST(ProgressLine, ShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(progress_line(state(), 120, false),
            "step  25/100  [#######.......................]  loss 2.3412  grad 0.876  12.3K tokens/s  eta 3 min 4 s"
            "  1.2 GiB");
}

TEST(ProgressLine, NeverExceedsTheWidth) {
  for (int width = 0; width <= 140; ++width) {
    const std::string line = progress_line(state(), width, false);
    EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    EXPECT_EQ(without_colour(progress_line(state(), width, true)), line) << "colour adds no columns";
  }
}

TEST(ProgressLine, LeavesOutTheLeastImportantFirst) {
  const std::vector<std::string> by_importance = {"step", "loss", "eta", "tokens/s", "grad", "GiB"};
  std::size_t shown_before = 0;
  for (int width = 12; width <= 140; ++width) {
    const std::string line = progress_line(state(), width, false);
    std::size_t shown = 0;
    while (shown < by_importance.size() && line.find(by_importance[shown]) != std::string::npos) ++shown;
    for (std::size_t i = shown; i < by_importance.size(); ++i) {
      EXPECT_EQ(line.find(by_importance[i]), std::string::npos) << width << ": " << line;
    }
    EXPECT_GE(shown, shown_before) << width << ": " << line;
    shown_before = shown;
  }
  EXPECT_EQ(shown_before, by_importance.size());
}

TEST(ProgressLine, ColoursOnlyTheBar) {
  const std::string line = progress_line(state(), 120, true);
  EXPECT_NE(line.find("[\x1b[36m#######"), std::string::npos) << line;
  EXPECT_EQ(progress_line(state(), 120, false).find('\x1b'), std::string::npos);
}

TEST(ProgressLine, ShowsNumbersThatAreNotFinite) {
  ProgressState broken = state();
  broken.metrics.loss = std::numeric_limits<double>::quiet_NaN();
  broken.metrics.grad_norm = std::numeric_limits<double>::infinity();
  broken.metrics.tokens_per_second = std::numeric_limits<double>::infinity();
  const std::string line = progress_log_line(broken);
  EXPECT_EQ(line, "step  25/100  loss nan  grad inf  inf tokens/s  eta 3 min 4 s  1.2 GiB");
}

TEST(ProgressLine, ShowsSlowRatesAndSmallLosses) {
  ProgressState slow = state();
  slow.rate = ProgressRate::samples;
  slow.metrics.samples_per_second = 0.126;
  slow.metrics.loss = 0.000123456;
  slow.eta_seconds = -1;
  EXPECT_EQ(progress_log_line(slow), "step  25/100  loss 0.0001235  grad 0.876  0.13 samples/s  1.2 GiB");
}

TEST(Progress, RedrawsAtMostTenTimesASecond) {
  Display display(1000, 100);
  for (int step = 1; step <= 500; ++step) {
    display.progress.step(at_step(step));
    display.now += 0.01;
  }
  EXPECT_GE(display.count("\r"), 45);
  EXPECT_LE(display.count("\r"), 51);
  EXPECT_EQ(display.count("\n"), 0);
}

TEST(Progress, EndsTheLiveLineOnceWithTheLastStepShown) {
  Display display(1000, 100);
  display.progress.step(at_step(1));
  display.now += 0.001;
  display.progress.step(at_step(2));  // too soon to be shown
  EXPECT_EQ(display.count("step    2/1000"), 0);
  display.progress.finish();
  display.progress.finish();
  EXPECT_EQ(display.count("step    2/1000"), 1);
  EXPECT_EQ(display.count("\n"), 1);
}

TEST(Progress, AnAbandonedLiveLineIsEnded) {
  std::ostringstream out;
  {
    Progress progress(out, {.total_steps = 10, .terminal_width = [] { return 80; }});
    progress.step(at_step(1));
  }
  EXPECT_TRUE(out.str().ends_with("\n"));
}

TEST(Progress, MessagesStandAboveTheLiveLine) {
  Display display(10, 100);
  display.progress.step(at_step(1));
  display.progress.message("saved step 1");
  const std::string text = display.out.str();
  EXPECT_NE(text.find("\r\x1b[Ksaved step 1\n\rstep  1/10"), std::string::npos) << text;
}

TEST(Progress, LogsAboutTwentyLinesARun) {
  Display display(1000);
  for (int step = 1; step <= 1000; ++step) display.progress.step(at_step(step));
  display.progress.finish();
  EXPECT_EQ(display.count("\n"), 21);  // the first and every fiftieth after it, and the last
  EXPECT_EQ(display.count("\r"), 0);
  EXPECT_EQ(display.count("\x1b"), 0);
  EXPECT_EQ(display.count("step 1000/1000"), 1);
}

TEST(Progress, LogsEveryStepOfAShortRun) {
  Display display(7);
  for (int step = 1; step <= 7; ++step) display.progress.step(at_step(step));
  display.progress.finish();
  EXPECT_EQ(display.count("\n"), 7);
}

TEST(Progress, LogsEveryTenSecondsWhenStepsAreSlow) {
  Display display(100000);
  for (int step = 1; step <= 61; ++step) {
    display.progress.step(at_step(step));
    display.now += 1;
  }
  EXPECT_EQ(display.count("\n"), 7);  // at 0, 10, ... 60 seconds
}

TEST(Progress, ShowsTheLastStepOfARunThatStopsEarly) {
  Display display(1000);
  for (int step = 1; step <= 30; ++step) display.progress.step(at_step(step));
  EXPECT_EQ(display.count("\n"), 1);
  display.progress.finish();
  EXPECT_EQ(display.count("step   30/1000"), 1);
}

TEST(Progress, GuessesTheTimeLeftFromThisProcess) {
  Display display(120, 0, 101);
  display.progress.step(at_step(101));
  EXPECT_EQ(display.count("eta 10 s"), 1) << display.out.str();  // 19 steps of 0.5 s
  for (int step = 102; step <= 110; ++step) {
    display.now += 6;  // an evaluation takes its time
    display.progress.step(at_step(step));
  }
  EXPECT_EQ(display.count("step 110/120"), 1) << display.out.str();
  EXPECT_EQ(display.count("eta 1 min\n") + display.count("eta 1 min  "), 1) << display.out.str();  // 10 steps of 6 s
}

TEST(Progress, AFileIsNoTerminal) {
  const int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_FALSE(terminal_width_of(file));
  close(file);
}

StepMetrics of_epoch(std::int64_t step, std::int64_t epoch, double loss, std::int64_t samples) {
  return {.step = step, .epoch = epoch, .loss = loss, .samples = samples, .tokens = 10 * samples, .step_seconds = 0.5};
}

TEST(Progress, AnEpochEndsWithItsAverages) {
  std::ostringstream out;
  double now = 0;
  Progress progress(out, {.total_steps = 4, .steps_per_epoch = 2, .clock_seconds = [&] { return now; }});
  progress.step(of_epoch(1, 0, 1.0, 6));
  EXPECT_EQ(out.str().find("epoch"), std::string::npos);
  progress.step(of_epoch(2, 0, 3.0, 2));  // a smaller last batch counts by its samples
  EXPECT_NE(out.str().find("epoch 1: mean loss 1.5000 over 2 steps, 8.00 samples/s, 1 s\n"), std::string::npos)
      << out.str();
  progress.step(of_epoch(3, 1, std::numeric_limits<double>::quiet_NaN(), 6));
  progress.step(of_epoch(4, 1, 0.5, 2));
  EXPECT_NE(out.str().find("epoch 2: mean loss 0.5000 over 2 steps"), std::string::npos) << out.str();
}

TEST(Progress, ManyEpochsShareLines) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 2000, .steps_per_epoch = 2, .clock_seconds = [] { return 0.0; }});
  for (std::int64_t step = 1; step <= 2000; ++step) progress.step(of_epoch(step, (step - 1) / 2, 1.0, 4));
  const auto text = out.str();
  EXPECT_NE(text.find("epochs 1-10: mean loss 1.0000 over 20 steps"), std::string::npos);
  EXPECT_NE(text.find("epochs 991-1000: "), std::string::npos);
  std::size_t lines = 0;
  for (auto at = text.find("epochs "); at != std::string::npos; at = text.find("epochs ", at + 1)) ++lines;
  EXPECT_EQ(lines, 100U);
}

}  // namespace progress_test
}  // namespace orthant
