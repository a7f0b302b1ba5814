#include "orthant/base/quantile.h"

#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant {
namespace {

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

TEST(ShareBeyondMedians, IsWhatSamplesTookMoreThanTheMiddleOne) {
  EXPECT_EQ(share_beyond_medians({{2, 2, 2}, {5}}), 0);
  EXPECT_DOUBLE_EQ(share_beyond_medians({{1, 1, 4}, {2, 2, 2}}), 3.0 / 12);  // longer series count for more
  EXPECT_DOUBLE_EQ(share_beyond_medians({{1, 4, 4}}), -3.0 / 9);
}

}  // namespace
}  // namespace orthant
