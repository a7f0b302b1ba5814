// Values and gradients between stages: all of them arrive, in order, as they were, and sending waits for nobody.
#include "orthant/parallel/pipeline/stage_links.h"

#include <gtest/gtest.h>

#include <future>

#include "parallel/pipeline/linked_stages.h"

namespace orthant {
namespace stage_links_test {

using test::LinkedRank;
using test::received;
using test::sent;

class StageLinksOver : public testing::TestWithParam<comm::BackendKind> {};

INSTANTIATE_TEST_SUITE_P(Backends, StageLinksOver, testing::ValuesIn(comm::test::backends()),
                         comm::test::backend_test_name);

// What a value is in a microbatch, or, with a consumer, that unit's gradient of it.
at::Tensor content(const GraphSpec& graph, const Action& action) {
  const auto form = test::declared(graph, action);
  const auto numbers = at::arange(num_elements(form.sizes), at::kDouble).reshape(form.sizes);
  return (numbers * 7 + 3 * action.value + 11 * action.microbatch + 5 * action.consumer).remainder(2).to(form.dtype) +
         (form.dtype == at::kBool ? at::zeros(form.sizes, at::kBool)
                                  : (numbers * 0.5 + action.microbatch).to(form.dtype));
}

bool same(const at::Tensor& found, const at::Tensor& expected) {
  return found.scalar_type() == expected.scalar_type() && found.sizes() == expected.sizes() &&
         at::equal(found, expected);
}

constexpr int kMicrobatches = 5;
const std::vector<int> kDeclared = {test::kWide, test::kIds, test::kMask, test::kLow};
const std::vector<int> kWithGradients = {test::kWide, test::kLow};

// What rank 0 does with every other rank, and they with it.
std::vector<Action> traffic_of(const LinkedRank& rank, int pp) {
  std::vector<Action> list;
  const int first = rank.index == 0 ? 1 : 0;
  const int end = rank.index == 0 ? pp : 1;
  for (int m = 0; m < kMicrobatches; ++m) {
    for (int peer = first; peer < end; ++peer) {
      for (const int value : kDeclared) list.push_back(rank.index == 0 ? sent(value, m, peer) : received(value, m, 0));
    }
  }
  const auto gradient = rank.index == 0 ? ActionKind::receive_gradient : ActionKind::send_gradient;
  for (int m = 0; m < kMicrobatches; ++m) {
    for (int peer = first; peer < end; ++peer) {
      const int consumer = rank.index == 0 ? peer : rank.index;
      for (const int value : kWithGradients) list.push_back(test::message(gradient, value, m, peer, consumer));
    }
  }
  return list;
}

TEST_P(StageLinksOver, ValuesAndGradientsArriveInOrder) {
  for (const int pp : {2, 3}) {
    test::on_linked_ranks(pp, GetParam(), [&](LinkedRank& rank) {
      const auto list = traffic_of(rank, pp);
      rank.begin(list);
      for (const auto& action : list) {
        if (action.kind == ActionKind::send || action.kind == ActionKind::send_gradient) {
          rank.links.send(action, content(rank.graph, action));
        } else {
          EXPECT_TRUE(same(rank.links.receive(action), content(rank.graph, action))) << to_string(action, rank.graph);
        }
      }
      rank.links.finish();
      EXPECT_EQ(rank.links.num_unsent(), 0U);
    });
  }
}

TEST_P(StageLinksOver, TwoReceivesOfAChannelArePostedEarly) {
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    const auto calls = [&] { return rank.activations().counters().of(comm::Op::receive).calls; };
    std::vector<Action> list;
    for (int m = 0; m < kMicrobatches; ++m) {
      list.push_back(rank.index == 0 ? sent(test::kWide, m, 1) : received(test::kWide, m, 0));
    }
    rank.begin(list);
    if (rank.index == 0) {
      for (const auto& action : list) rank.links.send(action, content(rank.graph, action));
      return;
    }
    EXPECT_EQ(calls(), 2);
    for (int m = 0; m < kMicrobatches; ++m) {
      rank.links.receive(list[static_cast<std::size_t>(m)]);
      EXPECT_EQ(calls(), std::min(m + 3, kMicrobatches));
    }
  });
}

// Strided, without elements, of no dims, of every dtype that can travel.
std::vector<at::Tensor> open_values() {
  const auto numbers = at::arange(48, at::kFloat).reshape({2, 3, 2, 4});
  return {numbers.contiguous(at::MemoryFormat::ChannelsLast),
          at::tensor(2.5, at::kDouble),
          numbers.transpose(0, 3),
          numbers.slice(3, 0, 4, 2),
          at::zeros({3, 0, 2}, at::kBFloat16),
          numbers.expand({2, 2, 3, 2, 4}),
          numbers > 20,
          at::arange(12, at::kLong).reshape({3, 4}).t(),
          numbers.to(at::kHalf)};
}

TEST_P(StageLinksOver, OpaqueValuesKeepTheirStrides) {
  const auto values = open_values();
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    std::vector<Action> list;
    for (std::size_t m = 0; m < values.size(); ++m) {
      const int microbatch = static_cast<int>(m);
      list.push_back(rank.index == 0 ? sent(test::kOpen, microbatch, 1) : received(test::kOpen, microbatch, 0));
    }
    rank.begin(list);
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (rank.index == 0) {
        rank.links.send(list[m], values[m]);
        continue;
      }
      const auto found = rank.links.receive(list[m]);
      ASSERT_TRUE(found.defined()) << m;
      EXPECT_TRUE(same(found, values[m])) << m;
      const bool dense = values[m].is_non_overlapping_and_dense();
      EXPECT_EQ(found.strides(), dense ? values[m].strides() : values[m].contiguous().strides()) << m;
    }
  });
}

// A gradient that does not exist, between two that do.
TEST_P(StageLinksOver, AMissingGradientArrivesAsNone) {
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    const auto kind = rank.index == 0 ? ActionKind::receive_gradient : ActionKind::send_gradient;
    std::vector<Action> list;
    for (int m = 0; m < 3; ++m) list.push_back(test::message(kind, test::kOpen, m, 1 - rank.index, /*consumer=*/2));
    rank.begin(list);
    for (int m = 0; m < 3; ++m) {
      const auto& action = list[static_cast<std::size_t>(m)];
      const auto gradient = m == 1 ? at::Tensor() : at::full({2, 2}, m, at::kFloat);
      if (rank.index == 1) {
        rank.links.send(action, gradient);
        continue;
      }
      const auto found = rank.links.receive(action);
      EXPECT_EQ(found.defined(), gradient.defined());
      if (gradient.defined()) {
        EXPECT_TRUE(same(found, gradient));
      }
    }
  });
}

TEST_P(StageLinksOver, OpaqueAndDeclaredValuesShareAChannel) {
  const std::vector<int> values = {test::kOpen, test::kOpen, test::kWide, test::kIds,
                                   test::kLow,  test::kOpen, test::kMask, test::kOpen};
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    std::vector<Action> list;
    for (int m = 0; m < 3; ++m) {
      for (const int value : values) list.push_back(rank.index == 0 ? sent(value, m, 1) : received(value, m, 0));
    }
    rank.begin(list);
    for (const auto& action : list) {
      const auto expected = action.value == test::kOpen ? at::full({action.microbatch + 1, 3}, 2.5, at::kDouble)
                                                        : content(rank.graph, action);
      if (rank.index == 0) {
        rank.links.send(action, expected);
      } else {
        EXPECT_TRUE(same(rank.links.receive(action), expected)) << to_string(action, rank.graph);
      }
    }
  });
}

// 20 messages of 4 MB are sent before the first is received.
TEST_P(StageLinksOver, ASendWaitsForNobody) {
  constexpr int kMessages = 20;
  constexpr std::int64_t kElements = 1 << 20;
  std::promise<void> all_sent;
  auto sent_by_first = all_sent.get_future();
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    std::vector<Action> list;
    for (int m = 0; m < kMessages; ++m) {
      list.push_back(rank.index == 0 ? sent(test::kWide, m, 1) : received(test::kWide, m, 0));
    }
    const auto large = [](const Action&) { return StageLinks::Form{{kElements}, at::kFloat}; };
    if (rank.index == 1) sent_by_first.wait();
    rank.links.begin(list, large);
    for (const auto& action : list) {
      const auto expected = at::full({kElements}, action.microbatch, at::kFloat);
      if (rank.index == 0) {
        rank.links.send(action, expected);
      } else {
        EXPECT_TRUE(same(rank.links.receive(action), expected)) << action.microbatch;
      }
    }
    if (rank.index == 0) {
      EXPECT_GT(rank.links.num_unsent(), 0U);
      all_sent.set_value();
    }
  });
}

// Shared memory tells what has left without being asked for an answer.
TEST(StageLinks, WhatHasArrivedIsGivenUp) {
  constexpr int kRounds = 1000;
  constexpr std::int64_t kElements = 1 << 18;
  // The last stage, which reads what comes back, is on rank 0.
  test::on_linked_ranks({0, 1, 0}, comm::BackendKind::shm, [&](LinkedRank& rank) {
    const bool first = rank.index == 0;
    std::vector<Action> list;
    for (int m = 0; m < kMicrobatches; ++m)
      list.push_back(first ? sent(test::kWide, m, 1) : received(test::kWide, m, 0));
    for (int m = 0; m < kRounds; ++m) list.push_back(first ? received(test::kBack, m, 1) : sent(test::kBack, m, 0));
    const auto form = [](const Action& action) {
      return StageLinks::Form{{action.value == test::kWide ? kElements : 1}, at::kDouble};
    };
    rank.links.begin(list, form);
    for (const auto& action : list) {
      if (action.kind == ActionKind::send) {
        rank.links.send(action, at::zeros(form(action).sizes, at::kDouble));
      } else {
        rank.links.receive(action);
      }
    }
    if (first) {
      EXPECT_EQ(rank.links.num_unsent(), 0U);
    }
  });
}

// A declared value's readers may leave it out: one rank adds nothing then, and so does this.
TEST_P(StageLinksOver, AMissingGradientOfADeclaredValueArrivesAsZeros) {
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    const auto kind = rank.index == 0 ? ActionKind::receive_gradient : ActionKind::send_gradient;
    const auto action = test::message(kind, test::kWide, 0, 1 - rank.index, /*consumer=*/2);
    rank.begin({action});
    if (rank.index == 1) {
      rank.links.send(action, {});
    } else {
      EXPECT_TRUE(same(rank.links.receive(action), at::zeros({4, 3}, at::kDouble)));
    }
  });
}

// As evaluations do, whose values no gradient answers, on a backend that cannot tell when something has left.
TEST_P(StageLinksOver, ListsWithoutAnswersKeepWhatTwoOfThemSent) {
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    for (int list = 0; list < 20; ++list) {
      const auto action = rank.index == 0 ? sent(test::kWide, 0, 1) : received(test::kWide, 0, 0);
      rank.begin({action});
      if (rank.index == 0) {
        rank.links.send(action, content(rank.graph, action));
      } else {
        rank.links.receive(action);
      }
      rank.links.end();
      EXPECT_LE(rank.links.num_unsent(), 2U) << "after list " << list;
    }
  });
}

// For a backend that cannot tell: the gradient of a value proves that it, and all before it, arrived.
TEST_P(StageLinksOver, AGradientProvesThatItsValueArrived) {
  test::on_linked_ranks(2, GetParam(), [&](LinkedRank& rank) {
    const bool first = rank.index == 0;
    std::vector<Action> list;
    for (int m = 0; m < 4; ++m) list.push_back(first ? sent(test::kWide, m, 1) : received(test::kWide, m, 0));
    const auto kind = first ? ActionKind::receive_gradient : ActionKind::send_gradient;
    for (const int m : {2, 3}) list.push_back(test::message(kind, test::kWide, m, 1 - rank.index, /*consumer=*/2));
    rank.begin(list);
    for (const auto& action : list) {
      if (action.kind == ActionKind::send || action.kind == ActionKind::send_gradient) {
        rank.links.send(action, content(rank.graph, action));
      } else {
        rank.links.receive(action);
      }
      if (action.kind == ActionKind::receive_gradient) {
        EXPECT_LE(rank.links.num_unsent(), action.microbatch == 2 ? 1U : 0U);
      }
    }
  });
}

}  // namespace stage_links_test
}  // namespace orthant
