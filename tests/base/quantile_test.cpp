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

}  // namespace
}  // namespace orthant
