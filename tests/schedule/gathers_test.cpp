#include "orthant/schedule/gathers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "schedule/peak_gathered.h"

namespace orthant {
namespace gathers_test {

// F of units 0..n-1, then BW of n-1..0, for each microbatch.
std::vector<Action> chain(int units, int microbatches) {
  std::vector<Action> list;
  for (int m = 0; m < microbatches; ++m) {
    for (int u = 0; u < units; ++u) list.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = m});
    for (int u = units; u-- > 0;) list.push_back({.kind = ActionKind::backward, .unit = u, .microbatch = m});
  }
  return list;
}

std::string text(const std::vector<Action>& list) {
  std::string out;
  for (const auto& action : list) {
    const char* name = action.kind == ActionKind::gather ? "g" : action.kind == ActionKind::free ? "-" : "";
    out += (out.empty() ? "" : " ") + std::string(*name != 0 ? name : std::string(action_name(action.kind))) +
           std::to_string(action.unit);
  }
  return out;
}

GatherPolicy all_sharded(int units, int limit = 2) {
  return {.sharded = std::vector<bool>(static_cast<std::size_t>(units), true), .limit = limit};
}

TEST(Gathers, PrefetchTheNextUseAndKeepTheLastUnitsBetweenForwardAndBackward) {
  EXPECT_EQ(text(with_gathers(chain(3, 1), all_sharded(3))), "g0 g1 F0 -0 g2 F1 F2 BW2 -2 g0 BW1 -1 BW0 -0");
  EXPECT_EQ(text(with_gathers(chain(4, 1), all_sharded(4))),
            "g0 g1 F0 -0 g2 F1 -1 g3 F2 F3 BW3 -3 g1 BW2 -2 g0 BW1 -1 BW0 -0");
  EXPECT_EQ(text(with_gathers(chain(4, 1), all_sharded(4, 3))),
            "g0 g1 g2 F0 -0 g3 F1 F2 F3 BW3 -3 g0 BW2 -2 BW1 -1 BW0 -0");
}

TEST(Gathers, KeepTheFirstUnitsBetweenMicrobatches) {
  EXPECT_EQ(text(with_gathers(chain(3, 2), all_sharded(3))),
            "g0 g1 F0 -0 g2 F1 F2 BW2 -2 g0 BW1 BW0 F0 -0 g2 F1 F2 BW2 -2 g0 BW1 -1 BW0 -0");
}

TEST(Gathers, WithRoomForAllEachIsGatheredOnce) {
  EXPECT_EQ(text(with_gathers(chain(2, 2), all_sharded(2))), "g0 g1 F0 F1 BW1 BW0 F0 F1 BW1 -1 BW0 -0");
}

TEST(Gathers, ForwardsOfAllMicrobatchesFirstKeepOnlyTheLastUnitsOfTheLast) {
  std::vector<Action> list;
  for (int m = 0; m < 2; ++m) {
    for (int u = 0; u < 3; ++u) list.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = m});
  }
  for (int m = 0; m < 2; ++m) {
    for (int u = 3; u-- > 0;) list.push_back({.kind = ActionKind::backward, .unit = u, .microbatch = m});
  }
  EXPECT_EQ(text(with_gathers(list, all_sharded(3))),
            "g0 g1 F0 -0 g2 F1 -1 g0 F2 -2 g1 F0 -0 g2 F1 F2 "
            "BW2 -2 g0 BW1 -1 g2 BW0 -0 g1 BW2 -2 g0 BW1 -1 BW0 -0");
}

TEST(Gathers, LimitOfOneGathersOnlyWhatRunsNext) {
  EXPECT_EQ(text(with_gathers(chain(2, 1), all_sharded(2, 1))), "g0 F0 -0 g1 F1 BW1 -1 g0 BW0 -0");
  EXPECT_EQ(text(with_gathers(chain(2, 2), all_sharded(2, 1))),
            "g0 F0 -0 g1 F1 BW1 -1 g0 BW0 F0 -0 g1 F1 BW1 -1 g0 BW0 -0");
}

TEST(Gathers, KeptUnitsAreGatheredOnceAStep) {
  auto policy = all_sharded(3);
  policy.keep_gathered = true;
  const auto list = with_gathers(chain(3, 2), policy);
  EXPECT_EQ(std::ranges::count(list, ActionKind::gather, &Action::kind), 3);
  EXPECT_EQ(text(list).substr(0, 20), "g0 g1 F0 g2 F1 F2 BW");
  check_gathers(list, policy);
}

TEST(Gathers, GroupsBecomeFullTogetherAndCountOnce) {
  auto policy = all_sharded(4);
  policy.groups = {0, 0, 1, 2};
  const auto list = with_gathers(chain(4, 1), policy);
  EXPECT_EQ(text(list), "g0 g1 g2 F0 F1 -0 -1 g3 F2 F3 BW3 -3 g0 g1 BW2 -2 BW1 BW0 -0 -1");
  EXPECT_EQ(test::peak_gathered(list, policy), 2);
  EXPECT_EQ(test::peak_gathered(list, all_sharded(4)), 3);
}

TEST(Gathers, ABackwardThatReadsNoParametersIsNoUse) {
  auto policy = all_sharded(3);
  policy.reads_in_backward = {false, true, true};
  EXPECT_EQ(text(with_gathers(chain(3, 1), policy)), "g0 g1 F0 -0 g2 F1 F2 BW2 -2 BW1 -1 BW0");
  policy.groups = {0, 0, 1};
  EXPECT_EQ(text(with_gathers(chain(3, 1), policy)), "g0 g1 g2 F0 F1 F2 BW2 -2 BW1 -0 -1 BW0");
}

// A head that makes its logits again for the gradients of its weights.
TEST(Gathers, GradientsOfWeightsThatReadParametersAreAUse) {
  auto policy = all_sharded(2, 1);
  const std::vector<Action> split = {{.kind = ActionKind::backward_input, .unit = 1, .microbatch = 0},
                                     {.kind = ActionKind::backward_input, .unit = 0, .microbatch = 0},
                                     {.kind = ActionKind::backward_weight, .unit = 1, .microbatch = 0},
                                     {.kind = ActionKind::backward_weight, .unit = 0, .microbatch = 0}};
  EXPECT_EQ(text(with_gathers(split, policy)), "g1 B1 -1 g0 B0 -0 W1 W0");
  policy.reads_in_weights = {false, true};
  const auto list = with_gathers(split, policy);
  EXPECT_EQ(text(list), "g1 B1 -1 g0 B0 -0 g1 W1 -1 W0");
  check_gathers(list, policy);
}

TEST(Gathers, ComeInTheOrderOfTheUses) {
  std::vector<Action> uses = {{.unit = 0, .microbatch = 0},
                              {.unit = 1, .microbatch = 0},
                              {.unit = 0, .microbatch = 1},
                              {.unit = 2, .microbatch = 0}};
  // 2 waits for 1 to leave, not for 0, which is used again before.
  EXPECT_EQ(text(with_gathers(uses, all_sharded(3))), "g0 g1 F0 F1 -1 g2 F0 -0 F2 -2");
  EXPECT_EQ(text(with_gathers(uses, all_sharded(3, 3))), "g0 g1 g2 F0 F1 -1 F0 -0 F2 -2");
  std::swap(uses[2], uses[3]);
  EXPECT_EQ(text(with_gathers(uses, all_sharded(3))), "g0 g1 F0 -0 g2 F1 -1 g0 F2 -2 F0 -0");
}

TEST(Gathers, UnitsWithoutShardsAreLeftAlone) {
  GatherPolicy policy{.sharded = {false, true, false}};
  EXPECT_EQ(text(with_gathers(chain(3, 1), policy)), "g1 F0 F1 F2 BW2 BW1 -1 BW0");
}

TEST(Gathers, EveryChainKeepsTheBoundAndTheNumberOfGathers) {
  for (int units = 1; units <= 6; ++units) {
    for (int microbatches = 1; microbatches <= 3; ++microbatches) {
      for (int limit = 1; limit <= 4; ++limit) {
        SCOPED_TRACE(std::to_string(units) + " units, " + std::to_string(microbatches) + " microbatches, limit " +
                     std::to_string(limit));
        const auto policy = all_sharded(units, limit);
        const auto list = with_gathers(chain(units, microbatches), policy);
        check_gathers(list, policy);
        EXPECT_LE(test::peak_gathered(list, policy), limit);
        // Two per unit and microbatch, less the turning points: the last of each, the first between two of them.
        const int expected = 2 * units * microbatches - limit * (2 * microbatches - 1);
        EXPECT_EQ(std::ranges::count(list, ActionKind::gather, &Action::kind), units <= limit ? units : expected);
      }
    }
  }
}

TEST(Gathers, TheCheckNamesWhatIsWrong) {
  const auto policy = all_sharded(2);
  const auto refusal = [&](const std::vector<Action>& list) {
    return error_text<InternalError>([&] { check_gathers(list, policy); });
  };
  EXPECT_NE(refusal(chain(2, 1)).find("F of unit 0 microbatch 0: its parameters are shards"), std::string::npos);
  EXPECT_NE(refusal({{.kind = ActionKind::gather, .unit = 1}}).find("unit 1 is full at the end"), std::string::npos);
  EXPECT_NE(refusal({{.kind = ActionKind::free, .unit = 1}}).find("it is not full"), std::string::npos);
  EXPECT_NE(refusal({{.kind = ActionKind::gather, .unit = 1}, {.kind = ActionKind::gather, .unit = 1}})
                .find("it is full already"),
            std::string::npos);
  auto tight = all_sharded(2, 1);
  const auto loose = with_gathers(chain(2, 1), policy);
  EXPECT_NE(error_text<InternalError>([&] { check_gathers(loose, tight); }).find("too many groups are full"),
            std::string::npos);
  tight.groups = {0, 0};
  const auto alone = with_gathers(chain(2, 1), all_sharded(2, 1));
  EXPECT_NE(error_text<InternalError>([&] {
              check_gathers(alone, tight);
            }).find("gather of unit 0 microbatch -1: its group is full in part"),
            std::string::npos);
}

}  // namespace gathers_test
}  // namespace orthant
