#include "orthant/trace/speed_watch.h"

#include <gtest/gtest.h>

namespace speed_watch_test {
namespace {

using namespace orthant::trace;

SpeedWatch watch(std::vector<int> groups) {
  return {std::move(groups), [](int rank) { return "dp=" + std::to_string(rank); }};
}

// What is said in these steps, in order.
std::vector<std::string> said(SpeedWatch& watch, int steps, const WatchedStep& like) {
  std::vector<std::string> all;
  for (int i = 0; i < steps; ++i) {
    for (auto& text : watch.step(like)) all.push_back(text);
  }
  return all;
}

TEST(SpeedWatch, NamesASlowRankOnce) {
  auto one = watch({0, 0, 0, 0});
  const WatchedStep slow{.step = 1, .seconds = 0.01, .peak_memory_bytes = 1, .busy_seconds = {0.1, 0.1, 0.12, 0.1}};
  EXPECT_TRUE(said(one, 49, slow).empty());
  const auto texts = said(one, 200, slow);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_NE(texts[0].find("rank 2 (dp=2) has been slower than the ranks that do the same work for 50 steps, by 20%"),
            std::string::npos)
      << texts[0];
}

TEST(SpeedWatch, ForgivesARankThatCatchesUp) {
  auto one = watch({0, 0});
  WatchedStep step{.step = 1, .seconds = 0.01, .peak_memory_bytes = 1, .busy_seconds = {0.1, 0.2}};
  EXPECT_TRUE(said(one, 49, step).empty());
  step.busy_seconds = {0.1, 0.1};
  EXPECT_TRUE(said(one, 1, step).empty());
  step.busy_seconds = {0.1, 0.2};
  EXPECT_TRUE(said(one, 49, step).empty());
}

// Stages differ; ranks of one stage are compared.
TEST(SpeedWatch, ComparesRanksThatDoTheSameWork) {
  auto one = watch({0, 1});
  EXPECT_TRUE(said(one, 200, {.step = 1, .seconds = 0.01, .peak_memory_bytes = 1, .busy_seconds = {0.1, 0.3}}).empty());
}

TEST(SpeedWatch, SaysOnceThatStepsBecameSlower) {
  auto one = watch({0});
  EXPECT_TRUE(said(one, 100, {.step = 100, .seconds = 0.010}).empty());
  EXPECT_TRUE(said(one, 50, {.step = 150, .seconds = 0.0119}).empty());
  const auto texts = said(one, 150, {.step = 300, .seconds = 0.013});
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(texts[0], "steps take 13 ms now and took 10 ms up to step 100: 30% more");
}

TEST(SpeedWatch, SaysOnceThatMemoryGrows) {
  auto one = watch({0});
  std::vector<std::string> texts;
  for (int window = 0; window < 10; ++window) {
    for (auto& text : said(one, 50, {.step = 50 * window, .seconds = 0.01, .peak_memory_bytes = 1000 + 50 * window})) {
      texts.push_back(text);
    }
  }
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_NE(texts[0].find("memory grows"), std::string::npos);
  auto other = watch({0});
  EXPECT_TRUE(said(other, 1000, {.step = 1, .seconds = 0.01, .peak_memory_bytes = 1000}).empty());
}

}  // namespace
}  // namespace speed_watch_test
