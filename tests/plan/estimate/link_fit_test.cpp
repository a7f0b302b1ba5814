#include "orthant/plan/estimate/link_fit.h"

#include <gtest/gtest.h>

namespace orthant {
namespace link_fit_test {

LinkSample sample(double hops, double bytes, double latency, double bandwidth, double error = 0) {
  return {hops, bytes, (hops * latency + bytes / bandwidth) * (1 + error)};
}

TEST(LinkFit, FindsTheLinkThatExactTimesComeFrom) {
  std::vector<LinkSample> samples;
  for (const double bytes : {4e3, 64e3, 1e6, 16e6}) {
    samples.push_back(sample(2, bytes, 3e-6, 1e10));
    samples.push_back(sample(1, bytes / 2, 3e-6, 1e10));
  }
  const Link link = fit_link(samples);
  EXPECT_NEAR(link.latency, 3e-6, 1e-12);
  EXPECT_NEAR(link.bandwidth, 1e10, 1);
  EXPECT_EQ(link.efficiency, 1);
}

TEST(LinkFit, ErrorsOfLargeMessagesDoNotHideTheLatency) {
  const std::vector<LinkSample> samples = {sample(1, 1e3, 5e-6, 2e9), sample(1, 1e4, 5e-6, 2e9),
                                           sample(1, 1e7, 5e-6, 2e9, 0.2), sample(1, 1e8, 5e-6, 2e9, -0.2)};
  const Link link = fit_link(samples);
  EXPECT_NEAR(link.latency, 5e-6, 1e-6);
  EXPECT_NEAR(link.bandwidth, 2e9, 4e8);
}

TEST(LinkFit, HasNoLatencyBelowNone) {
  const std::vector<LinkSample> samples = {{1, 1e3, 1e-7}, {1, 1e6, 1e-3}};  // the small one is faster by the byte
  const Link link = fit_link(samples);
  EXPECT_EQ(link.latency, 0);
  EXPECT_GT(link.bandwidth, 1e9);
  EXPECT_LT(link.bandwidth, 1e10);
}

TEST(LinkFit, TakesOneSampleForItsBandwidth) {
  const Link link = fit_link({{1, 1e6, 1e-3}});
  EXPECT_EQ(link.latency, 0);
  EXPECT_NEAR(link.bandwidth, 1e9, 1);
}

}  // namespace link_fit_test
}  // namespace orthant
