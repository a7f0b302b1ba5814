#include "orthant/schedule/grid.h"

#include <gtest/gtest.h>

#include "orthant/schedule/generators.h"

namespace orthant {
namespace grid_test {

TEST(Grid, ShowsTimeByPpCoordinate) {
  EXPECT_EQ(grid_text(one_forward_one_backward(2, 3)),
            "time | 0    1    2    3    4    5    6    7\n"
            "pp 0 | 0F0  0F1  .    0BW0 0F2  0BW1 .    0BW2\n"
            "pp 1 | .    1F0  1BW0 1F1  1BW1 1F2  1BW2 .\n");
}

TEST(Grid, SplitBackwardsFillTheBubble) {
  EXPECT_EQ(grid_text(parse_table("0F0 0F1 0B0 0W0 0B1 0W1\n1F0 1B0 1F1 1B1 1W0 1W1", "text")),
            "time | 0   1   2   3   4   5   6\n"
            "pp 0 | 0F0 0F1 .   0B0 0W0 0B1 0W1\n"
            "pp 1 | .   1F0 1B0 1F1 1B1 1W0 1W1\n");
}

TEST(Grid, EveryTableHasAPicture) {
  EXPECT_EQ(grid_text(StageTable{}), "time |\n");
  EXPECT_EQ(grid_text(parse_table("0BW0 0F0\n1F0 1BW0\n-", "text")),
            "time | 0    1    2    3\n"
            "pp 0 | 0BW0 0F0  .    .\n"
            "pp 1 | .    .    1F0  1BW0\n"
            "pp 2 | .    .    .    .\n");
}

TEST(Grid, MarksStandInBracketsAmongTheirSurroundings) {
  const StageTable table = one_forward_one_backward(2, 8);
  EXPECT_EQ(marked_grid(table, {{1, 8}, {0, 7}}),
            "position | 2     3     4     5     6     7     8     9     10    11    12    13    14\n"
            "pp 0     |  0BW0  0F2   0BW1  0F3   0BW2 [0F4]  0BW3  0F5   0BW4  0F6   0BW5  0F7   ...\n"
            "pp 1     |  1F1   1BW1  1F2   1BW2  1F3   1BW3 [1F4]  1BW4  1F5   1BW5  1F6   1BW6  ...");
  EXPECT_EQ(marked_grid(gpipe(2, 1), {{1, 1}}),
            "position | 0      1\n"
            "pp 0     |  0F0    0BW0\n"
            "pp 1     |  1F0   [1BW0]");
}

TEST(PeakInFlight, CountsUntilTheWeightGradient) {
  EXPECT_EQ(peak_in_flight(parse_table("0F0 0B0 0F1 0B1 0W0 0F2 0BW2 0W1", "text")), (std::vector<int>{2}));
  EXPECT_EQ(peak_in_flight(parse_table("0F0 1F0 1BW0 0BW0\n2F0 2BW0", "text")), (std::vector<int>{2, 1}));
}

}  // namespace grid_test
}  // namespace orthant
