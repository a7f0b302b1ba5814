#include "orthant/watch/run_text.h"

#include <gtest/gtest.h>

#include "orthant/watch/run_metrics.h"
#include "watch/small_run.h"

namespace orthant {
namespace run_text_test {

using test::SmallRun;
using watch::RunLines;
using watch::RunWatch;

TEST(RunText, TellsEachThingOnce) {
  SmallRun folder;
  RunWatch run(folder.path);
  RunLines lines;
  EXPECT_EQ(lines.next(run), "");
  folder.step(1, "2.5");
  folder.step(2, "2.25");
  run.look_now();
  EXPECT_EQ(lines.next(run), "step 2, loss 2.25, tokens a second 1.5k\n");
  EXPECT_EQ(lines.next(run), "");
  folder.step(3, "null");
  folder.log("step 3: loss nan, gradient norm nan; the update was left out; \x1b[31munit layers.1");
  run.look_now();
  const auto text = lines.next(run);
  EXPECT_TRUE(text.starts_with("bad step at step 3\nstep 3, ")) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << "what a file says cannot move the cursor";
  EXPECT_EQ(lines.next(run), "");
  EXPECT_TRUE(RunLines::last(run).starts_with("the run has ended\n1. "));
}

TEST(RunText, FitsTheTerminal) {
  SmallRun folder;
  folder.step(1, "2.5");
  const RunWatch run(folder.path);
  const auto screen = watch::screen_of(run, {.columns = 20, .rows = 4});
  EXPECT_EQ(std::ranges::count(screen, '\n'), 3);
  EXPECT_TRUE(screen.starts_with("\x1b[H"));
  EXPECT_TRUE(screen.ends_with("\x1b[J"));
  std::size_t begin = 3;
  for (std::size_t end = 0; (end = screen.find("\x1b[K\n", begin)) != std::string::npos; begin = end + 4) {
    EXPECT_LE(end - begin, 20U);
  }
}

TEST(RunMetrics, AreWhatPrometheusReads) {
  SmallRun folder;
  folder.step(7, "2.5");
  folder.step(8, "null");
  folder.log("step 8: loss nan, gradient norm nan; the update was left out; unit layers.1");
  folder.log("rank 0 of 2 started: host a");
  std::filesystem::create_directories(folder.path + "/checkpoints/step-4");
  const RunWatch run(folder.path);
  const auto text = watch::run_metrics(run.run(), run.state());
  for (const char* line :
       {"orthant_train_running 0\n", "orthant_train_step 8\n", "orthant_train_loss NaN\n", "orthant_train_lr 0.001\n",
        "orthant_train_tokens_per_second 1500\n", "orthant_train_restarts_total 1\n",
        "orthant_train_bad_steps_total 1\n", "orthant_train_checkpoints 1\n", "# TYPE orthant_train_loss gauge\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("grad_norm"), std::string::npos) << "what was not told is left out";
}

}  // namespace run_text_test
}  // namespace orthant
