#include "orthant/base/base64.h"

#include <gtest/gtest.h>

namespace orthant {
namespace base64_test {

TEST(Base64, GivesBytesOrNothing) {
  EXPECT_EQ(bytes_of_base64("aGVsbG8="), "hello");
  EXPECT_EQ(bytes_of_base64("aGVsbA=="), "hell");
  EXPECT_EQ(bytes_of_base64("/+8A"), std::string("\xff\xef\0", 3));
  EXPECT_EQ(bytes_of_base64(""), "");
  EXPECT_EQ(bytes_of_base64("aGVsbG8"), std::nullopt);
  EXPECT_EQ(bytes_of_base64("aGVs!G8="), std::nullopt);
  EXPECT_EQ(bytes_of_base64("a==="), std::nullopt);
}

}  // namespace base64_test
}  // namespace orthant
