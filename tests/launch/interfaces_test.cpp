#include "orthant/launch/interfaces.h"

#include <gtest/gtest.h>

#include "launch/message_of.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace interfaces_test {

TEST(Interfaces, AreFoundByName) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
}

TEST(Interfaces, ThatAreNotThereAreRefusedWithThoseThatAre) {
  try {
    address_of_interface("ib7");
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "--interface ib7: this host has no interface of that name with an IPv4 address");
    EXPECT_NE(error.remedy().find("lo (127.0.0.1)"), std::string::npos) << error.remedy();
  }
}

}  // namespace interfaces_test
}  // namespace orthant::launch
