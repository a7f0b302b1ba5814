#include "orthant/base/quantile.h"

#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant {
namespace quantile_test {

TEST(Quantile, IsASampleWithThatShareBelowIt) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.5), 3);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 0.0), 1);
  EXPECT_EQ(quantile({4, 1, 3, 2}, 1.0), 4);
  EXPECT_EQ(quantile({7}, 0.9), 7);
}

TEST(Quantile, NeedsSamples) {
  EXPECT_THROW(quantile({}, 0.5), InternalError);
}

TEST(EvenSamples, AreAllOfAShortSeriesAndEvenlySpreadOverALongOne) {
  EvenSamples samples(4);
  for (int i = 0; i < 4; ++i) samples.add(i);
  EXPECT_EQ(samples.kept(), (std::vector<double>{0, 1, 2, 3}));
  for (int i = 4; i < 8; ++i) samples.add(i);
  EXPECT_EQ(samples.kept(), (std::vector<double>{0, 2, 4, 6}));
  for (int i = 8; i < 14; ++i) samples.add(i);
  EXPECT_EQ(samples.kept(), (std::vector<double>{0, 4, 8, 12}));
  EXPECT_EQ(samples.added(), 14);
  EXPECT_THROW(EvenSamples(3), InternalError);
}

TEST(EvenSamples, HaveTheMedianOfAHundredThousandInTheMemoryOfAFew) {
  EvenSamples samples(1024);
  const auto* memory = samples.kept().data();
  for (int i = 0; i < 100'000; ++i) samples.add(i % 7 < 4 ? 1.0 : 9.0 + i);  // four of seven
  EXPECT_EQ(quantile(samples.kept(), 0.5), 1.0);
  EvenSamples rising(1024);
  for (int i = 0; i < 100'000; ++i) rising.add(i);
  EXPECT_NEAR(quantile(rising.kept(), 0.5), 50'000, 100);
  EXPECT_EQ(samples.kept().data(), memory);
  EXPECT_LE(samples.kept().size(), 1024U);
}

TEST(ShareBeyondMedians, IsWhatSamplesTookMoreThanTheMiddleOne) {
  EXPECT_EQ(share_beyond_medians({{2, 2, 2}, {5}}), 0);
  EXPECT_DOUBLE_EQ(share_beyond_medians({{1, 1, 4}, {2, 2, 2}}), 3.0 / 12);  // longer series count for more
  EXPECT_DOUBLE_EQ(share_beyond_medians({{1, 4, 4}}), -3.0 / 9);
}

}  // namespace quantile_test
}  // namespace orthant
