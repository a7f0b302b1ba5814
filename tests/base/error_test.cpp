#include "orthant/base/error.h"

#include <gtest/gtest.h>

namespace orthant {
namespace error_test {

TEST(Error, ShowsRankMessageAndRemedy) {
  const CommError error("peer 2 closed the connection", {.remedy = "restart the job", .rank = 3});
  EXPECT_STREQ(error.what(), "rank 3: peer 2 closed the connection\n  fix: restart the job");
  EXPECT_EQ(error.message(), "peer 2 closed the connection");
}

TEST(Error, ShowsTheMessageAloneWithoutRankAndRemedy) {
  EXPECT_STREQ(DataError("no such file").what(), "no such file");
}

TEST(Error, HasOneExitCodePerKind) {
  EXPECT_EQ(ConfigError("").exit_code(), 2);
  EXPECT_EQ(CommError("").exit_code(), 3);
  EXPECT_EQ(DataError("").exit_code(), 4);
  EXPECT_EQ(InternalError("").exit_code(), 70);
}

TEST(Error, KnowsWhereItWasThrown) {
  const InternalError error("");
  EXPECT_EQ(short_location(error.where()), "base/error_test.cpp:" + std::to_string(__LINE__ - 1));
}

}  // namespace error_test
}  // namespace orthant
