#include "orthant/base/text_table.h"

#include <gtest/gtest.h>

namespace orthant {
namespace text_table_test {

TEST(TextTable, AlignsTheFirstColumnsLeftAndTheOthersRight) {
  const std::vector<TableLine> lines = {{"name", "shape", "bytes"}, {"a", "[1, 2]", "8"}, {"longer", "", "1024"}};
  EXPECT_EQ(text_table(lines),
            "name     shape  bytes\n"
            "a       [1, 2]      8\n"
            "longer           1024\n");
  EXPECT_EQ(text_table(lines, 3),
            "name    shape   bytes\n"
            "a       [1, 2]  8\n"
            "longer          1024\n");
  EXPECT_EQ(text_table({}), "");
}

}  // namespace text_table_test
}  // namespace orthant
