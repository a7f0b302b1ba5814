// What goes wrong between stages, in words.
#include <gtest/gtest.h>

#include <future>

#include "base/error_text.h"
#include "parallel/pipeline/linked_stages.h"

namespace orthant {
namespace stage_links_errors_test {

using test::LinkedRank;
using test::received;
using test::sent;

TEST(StageLinksErrors, AValueOfAnotherShapeThanPromisedIsNamed) {
  test::on_linked_ranks(2, comm::BackendKind::shm, [](LinkedRank& rank) {
    if (rank.index == 1) return;
    rank.begin({sent(test::kWide, 3, 1)});
    const auto text = [&](const at::Tensor& tensor) {
      return error_text<InternalError>([&] { rank.links.send(sent(test::kWide, 3, 1), tensor); });
    };
    EXPECT_NE(text(at::zeros({4, 2}, at::kDouble)).find("send wide m3 -> 1: it is Double [4, 2] and not Double [4, 3]"),
              std::string::npos);
    EXPECT_NE(text(at::zeros({4, 3}, at::kFloat)).find("send wide m3 -> 1: it is Float [4, 3] and not Double [4, 3]"),
              std::string::npos);
    EXPECT_NE(text(at::Tensor()).find("send wide m3 -> 1: it is missing and not Double [4, 3]"), std::string::npos);
    EXPECT_EQ(rank.links.num_unsent(), 0U);
  });
}

TEST(StageLinksErrors, AnOpaqueValueOfNineDimsCannotTravel) {
  test::on_linked_ranks(2, comm::BackendKind::shm, [](LinkedRank& rank) {
    if (rank.index == 1) return;
    rank.begin({sent(test::kOpen, 0, 1)});
    EXPECT_EQ(error_text<ConfigError>(
                  [&] { rank.links.send(sent(test::kOpen, 0, 1), at::zeros({1, 1, 1, 1, 1, 1, 1, 1, 1})); }),
              "a value of 9 dims crosses stages; 8 are the most that can\n"
              "  fix: flatten it, or put its writer and readers into one stage");
  });
}

TEST(StageLinksErrors, AReceiveOutOfOrderIsRefused) {
  test::on_linked_ranks(2, comm::BackendKind::shm, [](LinkedRank& rank) {
    if (rank.index == 0) {
      rank.begin({sent(test::kWide, 0, 1), sent(test::kIds, 0, 1)});
      rank.links.send(sent(test::kWide, 0, 1), at::zeros({4, 3}, at::kDouble));
      rank.links.send(sent(test::kIds, 0, 1), at::zeros({4, 2}, at::kLong));
      return;
    }
    rank.begin({received(test::kWide, 0, 0), received(test::kIds, 0, 0)});
    const auto text = [&](const Action& action) {
      return error_text<InternalError>([&] { rank.links.receive(action); });
    };
    EXPECT_NE(text(received(test::kIds, 0, 0)).find("receive ids m0 <- 0: not the next of its channel"),
              std::string::npos);
    EXPECT_NE(text(received(test::kWide, 1, 0)).find("receive wide m1 <- 0: not the next of its channel"),
              std::string::npos);
    rank.links.receive(received(test::kWide, 0, 0));
    rank.links.receive(received(test::kIds, 0, 0));
    EXPECT_NE(text(received(test::kIds, 0, 0)).find("receive ids m0 <- 0: not the next of its channel"),
              std::string::npos);
  });
}

// Stage 0 is on rank 2, stage 1 on rank 0, stage 2 on rank 1.
std::vector<std::string> errors_when_one_leaves(comm::BackendKind backend, int leaver,
                                                const std::function<void(LinkedRank&)>& body) {
  const auto leaving = [&](LinkedRank& rank) {
    if (rank.index == leaver) throw std::runtime_error("leaves");
    body(rank);
  };
  return comm::test::errors_of_ranks(Mesh(Degrees{{Axis::pp, 3}}), comm::test::quick(false, backend),
                                     test::link_groups(), test::linked_body({2, 0, 1}, leaving));
}

class StageLinksErrorsOver : public testing::TestWithParam<comm::BackendKind> {};

INSTANTIATE_TEST_SUITE_P(Backends, StageLinksErrorsOver, testing::ValuesIn(comm::test::backends()),
                         comm::test::backend_test_name);

TEST_P(StageLinksErrorsOver, APeerThatLeavesIsNamedWithWhatWasAwaited) {
  const auto errors = errors_when_one_leaves(GetParam(), 2, [](LinkedRank& rank) {
    const int value = rank.index == 0 ? test::kWide : test::kOpen;
    const Action action = received(value, 5, 2);
    rank.begin({action});
    rank.links.receive(action);
  });
  EXPECT_EQ(errors[2], "leaves");
  EXPECT_TRUE(errors[0].starts_with("rank 0 stage 1: waiting for activations of microbatch 5 from rank 2: "))
      << errors[0];
  EXPECT_TRUE(errors[1].starts_with("rank 1 stage 2: waiting for activations of microbatch 5 from rank 2: "))
      << errors[1];
}

TEST_P(StageLinksErrorsOver, AMissingGradientIsNamedByTheStageThatWroteTheValue) {
  const auto errors = errors_when_one_leaves(GetParam(), 1, [](LinkedRank& rank) {
    if (rank.index == 0) return;
    const auto action = test::message(ActionKind::receive_gradient, test::kWide, 7, 1, /*consumer=*/2);
    rank.begin({action});
    rank.links.receive(action);
  });
  EXPECT_EQ(errors[1], "leaves");
  EXPECT_TRUE(errors[2].starts_with("rank 2 stage 0: waiting for gradients of microbatch 7 from rank 1: "))
      << errors[2];
}

}  // namespace stage_links_errors_test
}  // namespace orthant
