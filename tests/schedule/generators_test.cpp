#include "orthant/schedule/generators.h"

#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"

namespace orthant {
namespace generators_test {

using test::thrown_text;

TEST(Generators, TablesReadAsTheirNamesSay) {
  EXPECT_EQ(to_text(one_stage(3)), "0F0 0BW0 0F1 0BW1 0F2 0BW2\n");
  EXPECT_EQ(to_text(gpipe(2, 2)), "0F0 0F1 0BW0 0BW1\n1F0 1F1 1BW0 1BW1\n");
  EXPECT_EQ(to_text(one_forward_one_backward(3, 4)),
            "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3\n"
            "1F0 1F1 1BW0 1F2 1BW1 1F3 1BW2 1BW3\n"
            "2F0 2BW0 2F1 2BW1 2F2 2BW2 2F3 2BW3\n");
  EXPECT_EQ(to_text(forward_only(2, 3)), "0F0 0F1 0F2\n1F0 1F1 1F2\n");
  EXPECT_EQ(to_text(zbh1(2, 3)),
            "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"
            "1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2\n");
  EXPECT_EQ(to_text(interleaved(2, 2, 2)),
            "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1\n"
            "1F0 1F1 3F0 3BW0 3F1 3BW1 1BW0 1BW1\n");
  EXPECT_EQ(to_text(zbv(2, 3)),
            "0F0 0F1 0F2 3F0 3B0 3W0 3F1 3B1 3W1 0B0 0W0 3F2 3B2 3W2 0B1 0W1 0B2 0W2\n"
            "1F0 2F0 1F1 2F1 2B0 2W0 1F2 1B0 1W0 2F2 2B1 2W1 1B1 2B2 1B2 1W1 2W2 1W2\n");
}

TEST(Generators, MicrobatchesInFlightFollowTheClosedForms) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 12; ++m) {
      const std::vector<int> one_by_one = peak_in_flight(one_forward_one_backward(p, m));
      for (int i = 0; i < p; ++i) {
        EXPECT_EQ(one_by_one[static_cast<std::size_t>(i)], std::min(m, p - i)) << p << " stages, " << m;
      }
      EXPECT_EQ(peak_in_flight(gpipe(p, m)), std::vector<int>(static_cast<std::size_t>(p), m));
      EXPECT_EQ(peak_in_flight(forward_only(p, m)), std::vector<int>(static_cast<std::size_t>(p), 1));
    }
  }
}

// Per pp coordinate, the most microbatches between F and B.
std::vector<int> most_before_backward(const StageTable& table) {
  std::vector<int> most;
  for (const auto& actions : table.actions) {
    int now = 0;
    int& peak = most.emplace_back(0);
    for (const StageAction& action : actions) {
      if (action.kind == StageKind::F) peak = std::max(peak, ++now);
      if (action.kind == StageKind::B || action.kind == StageKind::BW) --now;
    }
  }
  return most;
}

TEST(Generators, ZeroBubbleH1HoldsAsMuchAsTheFirstPpCoordinateOf1f1b) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 40; ++m) {
      const StageTable table = zbh1(p, m);
      EXPECT_EQ(peak_in_flight(table), std::vector<int>(static_cast<std::size_t>(p), std::min(m, p))) << p << " " << m;
      for (int i = 0; i < p; ++i) {
        EXPECT_EQ(most_before_backward(table)[static_cast<std::size_t>(i)], std::min(m, p - i)) << p << " " << m;
      }
    }
  }
}

TEST(Generators, InterleavedHoldsWhatItsWarmUpRan) {
  for (int p = 1; p <= 16; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = 1; m <= 2 * p + 1; ++m) {
        const std::vector<int> peaks = peak_in_flight(interleaved(p, v, m));
        for (int i = 0; i < p; ++i) {
          const int form = std::min(m * v, p * v + p - 1 - 2 * i);
          const int peak = peaks[static_cast<std::size_t>(i)];
          if (m % p == 0) {
            EXPECT_EQ(peak, form) << p << " pp coordinates, " << v << " stages each, " << m << " microbatches";
          } else {
            EXPECT_LE(peak, form) << p << " pp coordinates, " << v << " stages each, " << m << " microbatches";
          }
        }
      }
    }
  }
}

TEST(Generators, ZeroBubbleVHoldsTwoStagesOfPMicrobatches) {
  for (int p = 1; p <= 16; ++p) {
    for (int m = 1; m <= 40; ++m) {
      for (const int peak : peak_in_flight(zbv(p, m))) {
        if (m >= 2 * p - 1) {
          EXPECT_EQ(peak, 2 * p) << p << " pp coordinates, " << m << " microbatches";
        } else {
          EXPECT_LE(peak, std::min(2 * m, 2 * p)) << p << " pp coordinates, " << m << " microbatches";
        }
      }
    }
  }
}

TEST(Generators, EveryTableIsValidOnAChain) {
  const GraphSpec graph = test::chain(6);
  for (int p = 1; p <= 8; ++p) {
    const StageMap map = even_stages(graph, p);
    for (int m = 1; m <= 9; ++m) {
      for (const StageTable& table : {gpipe(p, m), one_forward_one_backward(p, m), forward_only(p, m)}) {
        EXPECT_NO_THROW(validate(table, map, graph)) << to_text(table);
        EXPECT_NO_THROW(validate(on_one_pp_coordinate(table), on_one_pp_coordinate(map), graph))
            << to_text(on_one_pp_coordinate(table));
      }
    }
  }
}

TEST(Generators, OnePpCoordinateTakesThePpCoordinatesInTurns) {
  EXPECT_EQ(to_text(on_one_pp_coordinate(gpipe(2, 2))), "0F0 1F0 0F1 1F1 1BW0 0BW0 1BW1 0BW1\n");
  EXPECT_EQ(to_text(on_one_pp_coordinate(one_forward_one_backward(2, 2))), "0F0 1F0 0F1 1BW0 0BW0 1F1 1BW1 0BW1\n");
  EXPECT_EQ(to_text(on_one_pp_coordinate(parse_table("0F0 0B0 0W0\n1F0 1B0 1W0", "text"))),
            "0F0 1F0 1B0 0B0 1W0 0W0\n");
}

TEST(Generators, OnePpCoordinateNamesTheActionsThatBlock) {
  EXPECT_EQ(thrown_text([] { on_one_pp_coordinate(parse_table("0F0 0BW0 0F1 0BW1\n1F0 1F1 1BW0 1BW1", "text")); }),
            "the pp coordinates of this table wait for each other: pp 0 at 0BW0 for 1BW0, pp 1 at 1F1 for 0F1\n"
            "order the actions so that every microbatch passes the stages as a chain");
  EXPECT_EQ(thrown_text([] { on_one_pp_coordinate(parse_table("0W0 0B0 0F0", "text")); }),
            "the pp coordinates of this table wait for each other: pp 0 at 0W0 for 0B0\n"
            "order the actions so that every microbatch passes the stages as a chain");
  EXPECT_EQ(thrown_text([] { on_one_pp_coordinate(parse_table("0BW0 0F0", "text")); }),
            "the pp coordinates of this table wait for each other: pp 0 at 0BW0 for 0F0\n"
            "order the actions so that every microbatch passes the stages as a chain");
}

TEST(Generators, RefuseEmptySchedules) {
  EXPECT_EQ(thrown_text([] { gpipe(0, 4); }),
            "a gpipe schedule of 0 stages and 4 microbatches was asked for\n"
            "set at least one stage and one microbatch");
  EXPECT_EQ(thrown_text([] { one_forward_one_backward(2, 0); }),
            "a 1f1b schedule of 2 stages and 0 microbatches was asked for\n"
            "set at least one stage and one microbatch");
  EXPECT_EQ(thrown_text([] { forward_only(2, -1); }),
            "a forward-only schedule of 2 stages and -1 microbatches was asked for\n"
            "set at least one stage and one microbatch");
  for (const auto& [pp_degree, stages] : {std::pair(0, 2), std::pair(2, 0), std::pair(-1, -2)}) {
    EXPECT_TRUE(thrown_text([&, p = pp_degree, v = stages] { interleaved(p, v, 1); }).starts_with("a interleaved"));
  }
  EXPECT_TRUE(thrown_text([] { zbh1(0, 1); }).starts_with("a zbh1 schedule of 0 stages"));
  EXPECT_TRUE(thrown_text([] { zbv(0, 1); }).starts_with("a zbv schedule of 0 stages"));
}

}  // namespace generators_test
}  // namespace orthant
