#include "orthant/train/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace orthant {
namespace run_log_test {

StepMetrics at_step(std::int64_t step) {
  return {.step = step, .loss = 0.5, .grad_norm = 2, .lr = 0.1, .peak_memory_bytes = 64};
}

TEST(RunLog, WithoutSinksDoesNothing) {
  RunLog log;
  log.step(at_step(1));
  log.eval(1, {{"loss", 1}});
  log.finish();
}

TEST(RunLog, GivesStepsAndEvaluationsToTheirFiles) {
  std::vector<std::string> steps;
  std::vector<std::string> evals;
  int closed = 0;
  RunLog log({metrics_sink([&](const std::string& line) { steps.push_back(line); }, [&] { ++closed; }),
              eval_sink([&](const std::string& line) { evals.push_back(line); }, [&] { ++closed; })});
  log.step(at_step(1));
  log.step(at_step(2));
  log.eval(2, {{"accuracy", 0.75}});
  log.finish();
  log.finish();
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1], metrics_line(at_step(2)));
  EXPECT_EQ(evals, std::vector<std::string>{R"({"step":2,"accuracy":0.75})"});
  EXPECT_EQ(closed, 2);
}

TEST(RunLog, DrawsFiniteScalars) {
  std::map<std::string, double> points;
  RunLog log({scalar_sink([&](const std::string& tag, std::int64_t step, double value) {
    EXPECT_EQ(step, 3);
    points[tag] = value;
  })});
  StepMetrics metrics = at_step(3);
  metrics.loss = std::nan("");
  log.step(metrics);
  log.eval(3, {{"accuracy", 0.75}, {"roc_auc", std::nan("")}});
  EXPECT_EQ(points.count("train/loss"), 0U);
  EXPECT_EQ(points.count("eval/roc_auc"), 0U);
  EXPECT_EQ(points.at("train/grad_norm"), 2);
  EXPECT_EQ(points.at("train/lr"), 0.1);
  EXPECT_EQ(points.at("memory/peak_bytes"), 64);
  EXPECT_EQ(points.at("eval/accuracy"), 0.75);
}

TEST(RunLog, ShowsProgressAndEvaluations) {
  std::ostringstream out;
  RunLog log({progress_sink(std::make_shared<Progress>(out, ProgressOptions{.total_steps = 2}))});
  log.step(at_step(1));
  log.eval(1, {{"accuracy", 0.75}, {"loss", 0.5}});
  log.finish();
  EXPECT_NE(out.str().find("step 1/2"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("evaluation after step 1: accuracy 0.75 loss 0.5\n"), std::string::npos) << out.str();
}

TEST(RunLog, DoesNotHideASinkThatFails) {
  RunLog log({metrics_sink([](const std::string&) { throw std::runtime_error("disk full"); })});
  EXPECT_THROW(log.step(at_step(1)), std::runtime_error);
}

}  // namespace run_log_test
}  // namespace orthant
