#include "orthant/schedule/validate.h"

#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "schedule/graphs.h"

namespace orthant {
namespace validate_test {

using test::thrown_text;

// The error of a table on embed | layers.0 | head, loss, cut into as many stages as the table has.
std::string error_of(std::string_view text) {
  const GraphSpec graph = test::chain(1);
  const StageTable table = parse_table(text, "text");
  return thrown_text([&] { validate(table, even_stages(graph, table.num_stages), graph); });
}

TEST(Validate, TakesSplitBackwardsAndSeveralStagesPerPpCoordinate) {
  const GraphSpec graph = test::chain(2);
  const StageMap map = named_stages(graph, {{"embed"}, {"layers.0"}, {"layers.1"}, {"head", "loss"}}, {0, 1, 0, 1});
  const StageTable table = parse_table(
      "0F0 0F1 2F0 2F1 2BW0 0B0 2B1 2W1 0W0 0BW1\n"
      "1F0 1F1 3F0 3B0 3F1 3W0 3BW1 1BW0 1BW1\n",
      "text");
  EXPECT_NO_THROW(validate(table, map, graph));
}

TEST(Validate, NamesAnActionThatRunsTwice) {
  EXPECT_EQ(error_of("0F0 0F1 0F0 0BW0 0BW1"),
            "0F0 at position 2 of pp 0 runs a second time\n"
            "position | 0     1     2     3     4\n"
            "pp 0     |  0F0   0F1  [0F0]  0BW0  0BW1\n"
            "keep one of the two");
  EXPECT_EQ(error_of("0F0 0BW0 0BW0"),
            "0BW0 at position 2 of pp 0 is a second backward of that microbatch\n"
            "position | 0      1      2\n"
            "pp 0     |  0F0    0BW0  [0BW0]\n"
            "keep one of the two");
  EXPECT_EQ(error_of("0F0 0B0 0BW0"),
            "0BW0 at position 2 of pp 0 is a second backward of that microbatch\n"
            "position | 0      1      2\n"
            "pp 0     |  0F0    0B0   [0BW0]\n"
            "keep one of the two");
  EXPECT_EQ(error_of("0F0 0BW0 0W0"),
            "0W0 at position 2 of pp 0 is a second weight gradient of that microbatch\n"
            "position | 0     1     2\n"
            "pp 0     |  0F0   0BW0 [0W0]\n"
            "keep one of the two");
}

TEST(Validate, NamesAnActionThatIsMissing) {
  EXPECT_EQ(error_of("0F0 0F2 0BW0 0BW2"),
            "0F1 is missing on pp 0\n"
            "position | 0     1     2     3\n"
            "pp 0     |  0F0   0F2   0BW0  0BW2\n"
            "add 0F1 to pp 0");
  EXPECT_EQ(error_of("0F0 0F1 0BW0"),
            "0BW1 is missing on pp 0 after its forward\n"
            "position | 0     1     2\n"
            "pp 0     |  0F0  [0F1]  0BW0\n"
            "add 0BW1 to pp 0");
  EXPECT_EQ(error_of("0F0 0B0"),
            "0W0 is missing on pp 0 after its backward for the inputs\n"
            "position | 0     1\n"
            "pp 0     |  0F0  [0B0]\n"
            "add 0W0 to pp 0");
}

TEST(Validate, NamesABackwardBeforeWhatItNeeds) {
  EXPECT_EQ(error_of("0F0 0BW1 0BW0 0F1"),
            "0BW1 at position 1 of pp 0 has no 0F1 before it\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0   [0BW1]  0BW0   0F1\n"
            "put 0F1 before it");
  EXPECT_EQ(error_of("0F0 0W0 0B0"),
            "0W0 at position 1 of pp 0 has no 0B0 before it\n"
            "position | 0     1     2\n"
            "pp 0     |  0F0  [0W0]  0B0\n"
            "put 0B0 before it");
}

TEST(Validate, KeepsWeightGradientsInMicrobatchOrder) {
  EXPECT_EQ(error_of("0F0 0F1 0BW1 0BW0"),
            "0BW0 at position 3 of pp 0 comes after the weight gradient of microbatch 1; those of a stage are added "
            "in microbatch order\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0    0F1    0BW1  [0BW0]\n"
            "move it before that of microbatch 1");
  EXPECT_EQ(error_of("0F0 0F1 0B0 0BW1 0W0"),
            "0W0 at position 4 of pp 0 comes after the weight gradient of microbatch 1; those of a stage are added "
            "in microbatch order\n"
            "position | 0     1     2     3     4\n"
            "pp 0     |  0F0   0F1   0B0   0BW1 [0W0]\n"
            "move it before that of microbatch 1");
}

TEST(Validate, KeepsStagesOnTheirPpCoordinates) {
  EXPECT_EQ(error_of("0F0 1F0 1BW0 0BW0\n1F1"),
            "1F0 at position 1 of pp 0 belongs to pp 1, where stage 1 lies\n"
            "position | 0     1     2     3\n"
            "pp 0     |  0F0  [1F0]  1BW0  0BW0\n"
            "pp 1     |  1F1\n"
            "move it to pp 1");
  EXPECT_EQ(error_of("0F0 0BW0\n1F0 1BW0\n-\n"),
            "the schedule has 3 pp coordinates, the stages lie on 2\n"
            "write a schedule for 2 pp coordinates");
  const GraphSpec graph = test::chain(1);
  EXPECT_EQ(thrown_text([&] { validate(gpipe(2, 1), even_stages(graph, 3), graph); }),
            "the schedule has 2 stages, the model is cut into 3\n"
            "use the same number for both");
  EXPECT_EQ(thrown_text([&] { validate({1, 0, {{}}}, even_stages(graph, 1), graph); }),
            "the schedule has 0 microbatches\n"
            "set at least one");
  EXPECT_EQ(thrown_text([&] { validate({1, 1, {{{1, StageKind::F, 0}}}}, even_stages(graph, 1), graph); }),
            "1F0 at position 0 of pp 0 names a stage that is not one of 0 to 0\n"
            "position | 0\n"
            "pp 0     | [1F0]\n"
            "name stages of this schedule only");
  EXPECT_EQ(thrown_text([&] { validate({1, 1, {{{0, StageKind::F, 1}}}}, even_stages(graph, 1), graph); }),
            "0F1 at position 0 of pp 0 names a microbatch that is not one of 0 to 0\n"
            "position | 0\n"
            "pp 0     | [0F1]\n"
            "name microbatches of this schedule only");
}

TEST(Validate, NamesTheCycleOfADeadlock) {
  EXPECT_EQ(error_of("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1"),
            "deadlock: pp 0 in \"receive_gradient layers.0.out of head m0 <- 1\", pp 1 in \"receive layers.0.out "
            "m1 <- 0\" wait for each other\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0   [0BW0]  0F1    0BW1\n"
            "pp 1     |  1F0   [1F1]   1BW0   1BW1\n"
            "let one of them send what its peer waits for before it waits itself");
}

// pp 0 waits for the gradient of a skip from pp 2, pp 2 for a value of pp 1, pp 1 for one of pp 0.
TEST(Validate, NamesACycleOverThreePpCoordinates) {
  const GraphSpec graph = test::skips();
  const StageMap map = named_stages(graph, {{"down.0"}, {"down.1", "bottom"}, {"up.1", "up.0", "loss"}});
  const StageTable table = parse_table("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1\n2F0 2F1 2BW0 2BW1", "text");
  EXPECT_EQ(thrown_text([&] { validate(table, map, graph); }),
            "deadlock: pp 0 in \"receive_gradient down.0.out of up.0 m0 <- 2\", pp 2 in \"receive down.1.out m1 <- "
            "1\", pp 1 in \"receive down.0.out m1 <- 0\" wait for each other\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0   [0BW0]  0F1    0BW1\n"
            "pp 1     |  1F0   [1F1]   1BW0   1BW1\n"
            "pp 2     |  2F0   [2F1]   2BW0   2BW1\n"
            "let one of them send what its peer waits for before it waits itself");
}

TEST(Validate, NamesWhatIsNotThereYetOnTheSamePpCoordinate) {
  const GraphSpec graph = test::chain(1);
  const StageMap map = on_one_pp_coordinate(even_stages(graph, 2));
  EXPECT_EQ(thrown_text([&] { validate(parse_table("1F0 0F0 1BW0 0BW0", "text"), map, graph); }),
            "\"F head m0\" on pp 0 reads layers.0.out, which is not there yet\n"
            "position | 0     1     2     3\n"
            "pp 0     | [1F0]  0F0   1BW0  0BW0\n"
            "put it after F layers.0 m0");
  EXPECT_EQ(thrown_text([&] { validate(parse_table("0F0 1F0 0BW0 1BW0", "text"), map, graph); }),
            "\"BW layers.0 m0\" on pp 0 needs the gradient of layers.0.out from head, which is not there yet\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0    1F0   [0BW0]  1BW0\n"
            "put it after the backward of head m0");
}

TEST(Validate, BoundsWhatAPpCoordinateKeeps) {
  const GraphSpec graph = test::chain(1);
  const StageMap map = even_stages(graph, 2);
  EXPECT_NO_THROW(validate(one_forward_one_backward(2, 5), map, graph, {2, 1}));
  EXPECT_NO_THROW(validate(forward_only(2, 5), map, graph, {1, 1}));
  EXPECT_EQ(thrown_text([&] { validate(gpipe(2, 3), map, graph, {2, 3}); }),
            "0F2 at position 2 of pp 0 makes it keep the activations of 3 microbatches at once; the bound is 2\n"
            "position | 0     1     2     3     4     5\n"
            "pp 0     |  0F0   0F1  [0F2]  0BW0  0BW1  0BW2\n"
            "pp 1     |  1F0   1F1   1F2   1BW0  1BW1  1BW2\n"
            "put a backward before it, or allow more");
  EXPECT_NO_THROW(validate(zbh1(2, 5), map, graph, {2, 2}));
  EXPECT_EQ(thrown_text([&] { validate(zbh1(2, 5), map, graph, {2, 1}); }),
            "1F1 at position 2 of pp 1 makes it keep the activations of 2 microbatches at once; the bound is 1\n"
            "position | 0     1     2     3     4     5     6     7     8\n"
            "pp 0     |  0F0   0F1   0B0   0W0   0F2   0B1   0W1   0F3   ...\n"
            "pp 1     |  1F0   1B0  [1F1]  1B1   1W0   1F2   1B2   1W1   ...\n"
            "put a backward before it, or allow more");
  EXPECT_EQ(thrown_text<InternalError>([&] { validate(gpipe(2, 1), map, graph, {1}); }),
            "2 pp coordinates have 1 bounds\n");
}

TEST(Validate, TablesAloneAreChains) {
  EXPECT_NO_THROW(validate_chain(zbv(2, 3), {0, 1, 1, 0}, {4, 4}));
  EXPECT_EQ(thrown_text([] { validate_chain(parse_table("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1", "text"), {0, 1}); }),
            "deadlock: pp 0 in \"receive_gradient output 0 of stage 1 m0 <- 1\", pp 1 in \"receive output 0 m1 <- "
            "0\" wait for each other\n"
            "position | 0      1      2      3\n"
            "pp 0     |  0F0   [0BW0]  0F1    0BW1\n"
            "pp 1     |  1F0   [1F1]   1BW0   1BW1\n"
            "let one of them send what its peer waits for before it waits itself");
}

TEST(Validate, RefusesAMapThatDoesNotFitTheGraph) {
  const GraphSpec graph = test::chain(1);
  EXPECT_EQ(thrown_text([&] { validate(one_stage(1), {{{0, 1, 2}}, {0}}, graph); }),
            "no stage holds loss\n"
            "name every unit of the graph in some stage");
}

}  // namespace validate_test
}  // namespace orthant
