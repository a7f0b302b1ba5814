#include "orthant/launch/heartbeat.h"

#include <gtest/gtest.h>

namespace orthant::launch {
namespace heartbeat_test {

const Clock::time_point kBegin{};

TEST(Heartbeat, IsDueFourTimesInATimeoutAndEveryFiveSecondsAtLeast) {
  for (const auto& [timeout, interval] : {std::pair{8.0, 2.0}, {20.0, 5.0}, {300.0, 5.0}}) {
    Heartbeat heartbeat(timeout, kBegin);
    EXPECT_EQ(heartbeat.next(), kBegin + seconds(interval));
    EXPECT_FALSE(heartbeat.is_due(kBegin + seconds(interval - 0.1)));
    EXPECT_TRUE(heartbeat.is_due(kBegin + seconds(interval)));
    EXPECT_FALSE(heartbeat.is_due(kBegin + seconds(interval)));
    EXPECT_TRUE(heartbeat.is_due(kBegin + seconds(2 * interval)));
  }
}

TEST(Heartbeat, NamesTheSilenceOfAWholeTimeout) {
  Heartbeat heartbeat(8, kBegin);
  heartbeat.heard(kBegin + seconds(5));
  EXPECT_FALSE(heartbeat.silence(kBegin + seconds(12.9)));
  EXPECT_EQ(heartbeat.silence(kBegin + seconds(13)), "its launcher was silent for 8.0 s");
  for (double at = 2; at <= 12; at += 2) heartbeat.is_due(kBegin + seconds(at));
  EXPECT_EQ(heartbeat.next(), kBegin + seconds(13));
}

}  // namespace heartbeat_test
}  // namespace orthant::launch
