#include "orthant/launch/node_list.h"

#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace node_list_test {

using Hosts = std::vector<std::string>;

TEST(NodeList, ExpandsBrackets) {
  EXPECT_EQ(expand_node_list("n1", "L"), Hosts{"n1"});
  EXPECT_EQ(expand_node_list("n[08-10],login", "L"), (Hosts{"n08", "n09", "n10", "login"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[3,5]-ib", "L"), (Hosts{"r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"}));
  for (const char* text : {"", "n[", "n[1-", "n[2-1]", "n[a]", "n]1[", "a,,b", "n[]", "n[0-99999999]"}) {
    EXPECT_THROW(expand_node_list(text, "L"), ConfigError) << text;
  }
}

TEST(NodeList, ExpandsTaskCounts) {
  EXPECT_EQ(expand_tasks_per_node("4(x2),3", "T"), (std::vector<int>{4, 4, 3}));
  for (const char* text : {"", "x", "4(x", "4(x0)", "0", "4(x2)z", "-1"}) {
    EXPECT_THROW(expand_tasks_per_node(text, "T"), ConfigError) << text;
  }
}

}  // namespace node_list_test
}  // namespace orthant::launch
