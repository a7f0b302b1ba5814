#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"

namespace orthant {
namespace validate_actions_test {

using test::thrown_text;
using Lists = std::vector<std::vector<Action>>;

// embed on pp 0, head and loss on pp 1, one microbatch:
//   0: F embed, send, receive_gradient, BW embed, reduce
//   1: receive, F head, F loss, BW loss, BW head, send_gradient, reduce
class ValidateActions : public ::testing::Test {
 protected:
  ValidateActions() {
    for (int pp_coordinate = 0; pp_coordinate < 2; ++pp_coordinate)
      lists.push_back(lower(gpipe(2, 1), even_stages(graph, 2), graph, pp_coordinate));
  }

  std::string error(int microbatches = 1) const {
    return thrown_text([&] { validate_actions(lists, graph, microbatches); });
  }

  std::string first_line() const {
    const std::string text = error();
    return text.substr(0, text.find('\n'));
  }

  GraphSpec graph = test::chain(0);
  Lists lists;
};

TEST_F(ValidateActions, TakesWhatLoweringWrites) {
  EXPECT_NO_THROW(validate_actions(lists, graph, 1));
}

TEST_F(ValidateActions, GathersAndFreesMayStandAnywhere) {
  lists[0].insert(lists[0].begin(), {.kind = ActionKind::gather, .unit = 0});
  lists[0].push_back({.kind = ActionKind::free, .unit = 0});
  EXPECT_NO_THROW(validate_actions(lists, graph, 1));
}

TEST_F(ValidateActions, NamesAMissingReceive) {
  lists[1].erase(lists[1].begin());
  EXPECT_EQ(error(),
            "\"F head m0\" on pp 1 reads embed.out, which is not there yet\n"
            "pp 1:\n"
            ">     0  F head m0\n"
            "      1  F loss m0\n"
            "      2  BW loss m0\n"
            "      3  BW head m0\n"
            "receive embed.out m0 before it");
}

TEST_F(ValidateActions, NamesAPpCoordinateThatNeverSends) {
  lists[0] = {lists[0][0]};
  lists[1] = {lists[1][0], lists[1][1], lists[1][2]};
  EXPECT_EQ(error(),
            "\"receive embed.out m0 <- 0\" on pp 1 waits for what pp 0 never sends\n"
            "pp 1:\n"
            ">     0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            "      2  F loss m0\n"
            "add the send to pp 0");
}

TEST_F(ValidateActions, NamesAMissingSend) {
  lists[0].erase(lists[0].begin() + 1);
  EXPECT_EQ(error(),
            "deadlock: pp 0 in \"receive_gradient embed.out of head m0 <- 1\", pp 1 in \"receive embed.out m0 <- "
            "0\" wait for each other\n"
            "pp 0:\n"
            "      0  F embed m0\n"
            ">     1  receive_gradient embed.out of head m0 <- 1\n"
            "      2  BW embed m0\n"
            "      3  reduce embed\n"
            "pp 1:\n"
            ">     0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            "      2  F loss m0\n"
            "      3  BW loss m0\n"
            "let one of them send what its peer waits for before it waits itself");
}

TEST_F(ValidateActions, NamesASendBeforeItsValue) {
  std::swap(lists[0][0], lists[0][1]);
  EXPECT_EQ(error(),
            "\"send embed.out m0 -> 1\" on pp 0 comes before embed has made it on this pp coordinate\n"
            "pp 0:\n"
            ">     0  send embed.out m0 -> 1\n"
            "      1  F embed m0\n"
            "      2  receive_gradient embed.out of head m0 <- 1\n"
            "      3  BW embed m0\n"
            "put it after");
}

TEST_F(ValidateActions, NamesASendWithoutUse) {
  lists.emplace_back();
  lists[0][1].peer = 2;
  EXPECT_EQ(error(),
            "\"send embed.out m0 -> 2\" on pp 0 sends what pp 2 has no use for\n"
            "pp 0:\n"
            "      0  F embed m0\n"
            ">     1  send embed.out m0 -> 2\n"
            "      2  receive_gradient embed.out of head m0 <- 1\n"
            "      3  BW embed m0\n"
            "      4  reduce embed\n"
            "leave it out");
}

TEST_F(ValidateActions, NamesRepeatedActions) {
  const Lists whole = lists;
  const auto error_of_two = [&](std::ptrdiff_t position) {
    lists = whole;
    lists[0].insert(lists[0].begin() + position, Action(lists[0][static_cast<std::size_t>(position)]));
    return first_line();
  };
  EXPECT_EQ(error_of_two(0), "\"F embed m0\" on pp 0 runs a second time");
  EXPECT_EQ(error_of_two(1), "\"send embed.out m0 -> 1\" on pp 0 runs a second time");
  EXPECT_EQ(error_of_two(3), "\"BW embed m0\" on pp 0 is a second backward of that microbatch");
  EXPECT_EQ(error_of_two(4), "\"reduce embed\" on pp 0 runs a second time");
  lists = whole;
  lists[0].push_back({.kind = ActionKind::backward_weight, .unit = 0, .microbatch = 0});
  EXPECT_EQ(error(),
            "\"W embed m0\" on pp 0 is a second weight gradient of that microbatch\n"
            "pp 0:\n"
            "      2  receive_gradient embed.out of head m0 <- 1\n"
            "      3  BW embed m0\n"
            "      4  reduce embed\n"
            ">     5  W embed m0\n"
            "keep one of the two");
}

TEST_F(ValidateActions, NamesAnEarlyBackward) {
  std::swap(lists[0][2], lists[0][3]);
  EXPECT_EQ(error(),
            "\"BW embed m0\" on pp 0 needs the gradient of embed.out from head, which is not there yet\n"
            "pp 0:\n"
            "      0  F embed m0\n"
            "      1  send embed.out m0 -> 1\n"
            ">     2  BW embed m0\n"
            "      3  receive_gradient embed.out of head m0 <- 1\n"
            "      4  reduce embed\n"
            "receive that gradient of m0 before it");
}

TEST_F(ValidateActions, NamesALocalConsumerThatComesLater) {
  std::swap(lists[1][3], lists[1][4]);
  EXPECT_EQ(error(),
            "\"BW head m0\" on pp 1 needs the gradient of head.out from loss, which is not there yet\n"
            "pp 1:\n"
            "      0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            "      2  F loss m0\n"
            ">     3  BW head m0\n"
            "      4  BW loss m0\n"
            "      5  send_gradient embed.out of head m0 -> 0\n"
            "      6  reduce head\n"
            "put it after the backward of loss m0");
}

TEST_F(ValidateActions, NamesABackwardBeforeItsForward) {
  std::swap(lists[1][2], lists[1][3]);
  EXPECT_EQ(error(),
            "\"BW loss m0\" on pp 1 comes before its F\n"
            "pp 1:\n"
            "      0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            ">     2  BW loss m0\n"
            "      3  F loss m0\n"
            "      4  BW head m0\n"
            "      5  send_gradient embed.out of head m0 -> 0\n"
            "put it after");
  lists[1][2] = {.kind = ActionKind::backward_weight, .unit = 2, .microbatch = 0};
  EXPECT_EQ(error(),
            "\"W loss m0\" on pp 1 comes before its B\n"
            "pp 1:\n"
            "      0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            ">     2  W loss m0\n"
            "      3  F loss m0\n"
            "      4  BW head m0\n"
            "      5  send_gradient embed.out of head m0 -> 0\n"
            "put it after");
}

TEST_F(ValidateActions, NamesAnEarlyMissingOrNeedlessReduce) {
  const Lists whole = lists;
  std::swap(lists[0][3], lists[0][4]);
  EXPECT_EQ(error(),
            "\"reduce embed\" on pp 0 comes after 0 of the 1 weight gradients of embed\n"
            "pp 0:\n"
            "      0  F embed m0\n"
            "      1  send embed.out m0 -> 1\n"
            "      2  receive_gradient embed.out of head m0 <- 1\n"
            ">     3  reduce embed\n"
            "      4  BW embed m0\n"
            "put it after the last of them");
  lists = whole;
  lists[0].pop_back();
  EXPECT_EQ(error(),
            "\"reduce embed\" is missing\n"
            "add it to pp 0");
  lists[0].push_back({.kind = ActionKind::reduce, .unit = 2});
  EXPECT_EQ(error(),
            "\"reduce loss\" on pp 0 names a unit that holds no trainable parameter on this pp coordinate\n"
            "pp 0:\n"
            "      1  send embed.out m0 -> 1\n"
            "      2  receive_gradient embed.out of head m0 <- 1\n"
            "      3  BW embed m0\n"
            ">     4  reduce loss\n"
            "leave it out");
}

TEST_F(ValidateActions, NamesReceivesInAnotherOrderThanTheSends) {
  lists = {lower(gpipe(2, 2), even_stages(graph, 2), graph, 0), lower(gpipe(2, 2), even_stages(graph, 2), graph, 1)};
  std::swap(lists[0][1].microbatch, lists[0][3].microbatch);
  std::swap(lists[0][1], lists[0][2]);
  std::swap(lists[0][0].microbatch, lists[0][1].microbatch);
  EXPECT_EQ(error(2),
            "\"receive embed.out m0 <- 0\" on pp 1 finds \"send embed.out m1 -> 1\" first in its channel\n"
            "pp 1:\n"
            ">     0  receive embed.out m0 <- 0\n"
            "      1  F head m0\n"
            "      2  F loss m0\n"
            "      3  receive embed.out m1 <- 0\n"
            "receive in the order in which the peer sends");
}

TEST_F(ValidateActions, NamesWeightGradientsOutOfOrder) {
  lists = {lower(gpipe(2, 2), even_stages(graph, 2), graph, 0), lower(gpipe(2, 2), even_stages(graph, 2), graph, 1)};
  for (Action& action : lists[0]) {
    if (action.kind == ActionKind::backward) action.kind = ActionKind::backward_input;
  }
  lists[0].pop_back();
  for (const int microbatch : {1, 0}) {
    lists[0].push_back({.kind = ActionKind::backward_weight, .unit = 0, .microbatch = microbatch});
  }
  EXPECT_EQ(error(2),
            "\"W embed m1\" on pp 0 comes before the weight gradient of microbatch 0\n"
            "pp 0:\n"
            "      5  B embed m0\n"
            "      6  receive_gradient embed.out of head m1 <- 1\n"
            "      7  B embed m1\n"
            ">     8  W embed m1\n"
            "      9  W embed m0\n"
            "add the weight gradients of a unit in microbatch order");
}

TEST_F(ValidateActions, NamesAUnitOnTwoPpCoordinates) {
  lists[1].push_back(lists[0][0]);
  EXPECT_EQ(error(),
            "\"F embed m0\" on pp 1 runs a unit that also runs on pp 0\n"
            "pp 1:\n"
            "      4  BW head m0\n"
            "      5  send_gradient embed.out of head m0 -> 0\n"
            "      6  reduce head\n"
            ">     7  F embed m0\n"
            "keep every unit on one pp coordinate");
}

TEST_F(ValidateActions, NamesWhatDoesNotExist) {
  const std::vector<std::pair<Action, std::string>> wrong = {
      {{.kind = ActionKind::forward, .unit = 3, .microbatch = 0}, "\"F unit 3 m0\" on pp 0 names a unit"},
      {{.kind = ActionKind::reduce, .unit = -1}, "\"reduce unit -1\" on pp 0 names a unit"},
      {{.kind = ActionKind::send, .value = 3, .peer = 1, .microbatch = 0},
       "\"send value 3 m0 -> 1\" on pp 0 names a value"},
      {{.kind = ActionKind::send, .value = 0, .peer = 0, .microbatch = 0},
       "\"send embed.out m0 -> 0\" on pp 0 names a peer"},
      {{.kind = ActionKind::receive, .value = 0, .peer = 2, .microbatch = 0},
       "\"receive embed.out m0 <- 2\" on pp 0 names a peer"},
      {{.kind = ActionKind::receive_gradient, .value = 0, .consumer = 2, .peer = 1, .microbatch = 0},
       "\"receive_gradient embed.out of loss m0 <- 1\" on pp 0 names a consumer"},
      {{.kind = ActionKind::forward, .unit = 0, .microbatch = 1}, "\"F embed m1\" on pp 0 names a microbatch"},
  };
  const Lists whole = lists;
  for (const auto& [action, text] : wrong) {
    lists = whole;
    lists[0].insert(lists[0].begin(), action);
    EXPECT_EQ(first_line(), text + " that does not exist");
  }
}

TEST_F(ValidateActions, NamesAMissingForwardOrBackward) {
  lists = {{}, {}};
  EXPECT_EQ(error(),
            "\"F embed m0\" is missing\n"
            "add it to one pp coordinate");
  lists = {{{.kind = ActionKind::forward, .unit = 0, .microbatch = 0}}, {}};
  EXPECT_EQ(error(),
            "\"F head m0\" is missing\n"
            "add it to one pp coordinate");
  const Lists one = {lower(one_stage(1), even_stages(graph, 1), graph, 0)};
  // F embed, F head, F loss, BW loss, BW head, reduce head, BW embed, reduce embed
  lists = one;
  lists[0].erase(lists[0].begin() + 6, lists[0].end());
  EXPECT_EQ(error(),
            "\"BW embed m0\" is missing\n"
            "add it to pp 0");
  lists = one;
  lists[0][3].kind = ActionKind::backward_input;
  EXPECT_EQ(error(),
            "\"W loss m0\" is missing\n"
            "add it to pp 0");
  EXPECT_EQ(error(0),
            "lists for 0 microbatches\n"
            "set at least one");
}

}  // namespace validate_actions_test
}  // namespace orthant
