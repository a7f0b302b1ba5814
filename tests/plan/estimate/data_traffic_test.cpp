#include "orthant/plan/estimate/data_traffic.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "orthant/base/error.h"

#include "base/error_text.h"
#include "plan/estimate/data_graphs.h"
#include "plan/estimate/one_stage_traffic.h"

namespace orthant {

// For gtest's messages.
static void PrintTo(const DataTraffic& traffic, std::ostream* out) {
  *out << "gather " << traffic.gather.calls << " calls " << traffic.gather.bytes << " bytes, scatter "
       << traffic.scatter.calls << " calls " << traffic.scatter.bytes << " bytes, sum " << traffic.sum.calls
       << " calls " << traffic.sum.bytes << " bytes";
}

namespace data_traffic_test {

using test::settings_of;
using test::sized_chain;

DataTraffic traffic_of(const GraphSpec& graph, const DataSettings& settings) {
  return data_traffic(graph, settings, test::one_stage_actions(graph, settings));
}

DataTraffic both(const GraphSpec& graph, const DataSettings& settings) {
  const auto traffic = traffic_of(graph, settings);
  EXPECT_EQ(traffic, test::one_stage_traffic(graph, settings));
  return traffic;
}

TEST(DataTraffic, OneRankSaysNothing) {
  EXPECT_EQ(both(sized_chain(), settings_of("dp=1", 0)), DataTraffic{});
}

TEST(DataTraffic, ReplicasSumAllGradientsOnce) {
  const DataTraffic expected{.sum = {1, 512 * 4}};
  EXPECT_EQ(both(sized_chain(), settings_of("dp=4", 0)), expected);
  EXPECT_EQ(both(sized_chain(), settings_of("fsdp=2", 0)), expected);
  EXPECT_EQ(both(sized_chain(), settings_of("dp=2,fsdp=2", 0)), expected);
}

TEST(DataTraffic, BucketsCloseWhenTheyAreFull) {
  auto settings = settings_of("dp=2", 0);
  const auto calls = [&](std::int64_t bucket_bytes) {
    settings.policy.bucket_bytes = bucket_bytes;
    const auto traffic = both(sized_chain(), settings);
    EXPECT_EQ(traffic.sum.bytes, 512 * 4);
    return traffic.sum.calls;
  };
  EXPECT_EQ(calls(0), 4);
  EXPECT_EQ(calls(1024), 2);  // head; layers.1, layers.0, embed
  EXPECT_EQ(calls(1025), 2);  // head, layers.1; the rest
  EXPECT_EQ(calls(257), 3);   // head; layers.1, layers.0; embed
  EXPECT_EQ(calls(2049), 1);
}

TEST(DataTraffic, ZeroOneScattersGradientsAndGathersTheUpdate) {
  const DataTraffic::Entry gather{4, 512 * 4};
  EXPECT_EQ(both(sized_chain(), settings_of("fsdp=2", 1)), (DataTraffic{gather, {1, 512 * 4}, {}}));
  EXPECT_EQ(both(sized_chain(), settings_of("dp=3,fsdp=2", 1)), (DataTraffic{gather, {1, 512 * 4}, {1, 256 * 4}}));
  auto settings = settings_of("dp=3,fsdp=2", 1);
  settings.policy.bucket_bytes = 0;
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{gather, {4, 512 * 4}, {4, 256 * 4}}));
}

TEST(DataTraffic, ZeroTwoScattersEveryGroupAlone) {
  EXPECT_EQ(both(sized_chain(), settings_of("dp=2,fsdp=2", 2)),
            (DataTraffic{{4, 512 * 4}, {4, 512 * 4}, {4, 256 * 4}}));
  auto settings = settings_of("dp=2,fsdp=2", 2);
  settings.unit_groups = {0, 0, 1, 2, 3};
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{{3, 512 * 4}, {3, 512 * 4}, {3, 256 * 4}}));
}

TEST(DataTraffic, ZeroThreeGathersTwiceLessWhatStaysFull) {
  auto graph = sized_chain();
  const auto settings = settings_of("fsdp=2", 3);
  EXPECT_EQ(both(graph, settings), (DataTraffic{{6, (2 * 512 - 64 - 256) * 4}, {4, 512 * 4}, {}}));
  graph.units[0].backward_reads_parameters = false;
  EXPECT_EQ(both(graph, settings), (DataTraffic{{5, (2 * 512 - 64 - 256 - 128) * 4}, {4, 512 * 4}, {}}));
}

TEST(DataTraffic, ALargerLimitKeepsMoreFullAtTheTurningPoints) {
  auto graph = sized_chain();
  auto settings = settings_of("fsdp=2", 3);
  const auto gather = [&](int limit, int microbatches) {
    settings.policy.limit_all_gathers = limit;
    settings.microbatches = microbatches;
    return both(graph, settings).gather;
  };
  using Entry = DataTraffic::Entry;
  EXPECT_EQ(gather(1, 1), (Entry{7, (2 * 512 - 256) * 4}));
  EXPECT_EQ(gather(3, 1), (Entry{5, (2 * 512 - 64 - 64 - 256) * 4}));
  EXPECT_EQ(gather(4, 1), (Entry{4, 512 * 4}));
  EXPECT_EQ(gather(5, 1), (Entry{4, 512 * 4}));
  EXPECT_EQ(gather(1, 2), (Entry{13, (2 * 768 - 128) * 4}));
  // embed for F, for BW and the next F, for BW; the layers once; head for each microbatch.
  EXPECT_EQ(gather(3, 2), (Entry{7, (3 * 128 + 64 + 64 + 2 * 256) * 4}));
  EXPECT_EQ(gather(4, 2), (Entry{4, 512 * 4}));
  graph.units[0].backward_reads_parameters = false;
  // embed and head for each microbatch, the layers once.
  EXPECT_EQ(gather(3, 2), (Entry{6, (2 * 128 + 64 + 64 + 2 * 256) * 4}));
  EXPECT_EQ(gather(4, 2), (Entry{4, 512 * 4}));
}

TEST(DataTraffic, GroupsShareTheirGathers) {
  auto settings = settings_of("fsdp=2", 3);
  settings.unit_groups = {0, 0, 1, 2, 3};
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{{4, (2 * 512 - 64 - 256) * 4}, {3, 512 * 4}, {}}));
  settings.unit_groups = {0, 0, 0, 0, 0};
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{{1, 512 * 4}, {1, 512 * 4}, {}}));
}

TEST(DataTraffic, KeptParametersAreGatheredOnceAStep) {
  auto settings = settings_of("fsdp=2", 3);
  settings.policy.keep_gathered = true;
  settings.microbatches = 3;
  EXPECT_EQ(both(sized_chain(), settings).gather, (DataTraffic::Entry{4, 512 * 4}));
}

TEST(DataTraffic, MicrobatchesGatherAgainAndScatterWhereShardsAccumulate) {
  auto settings = settings_of("dp=2,fsdp=2", 3);
  settings.microbatches = 2;
  const DataTraffic::Entry gather{10, (2 * 704 - 128 - 64) * 4};
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{gather, {4, 512 * 4}, {4, 256 * 4}}));
  settings.policy.accumulate_sharded = true;
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{gather, {8, 2 * 512 * 4}, {4, 256 * 4}}));
}

TEST(DataTraffic, DtypesAndTheHookSetTheBytes) {
  auto settings = settings_of("dp=2,fsdp=2", 3);
  settings.compute = DType::bfloat16;
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{{6, 704 * 2}, {4, 512 * 4}, {4, 256 * 4}}));
  settings.bf16_hook = true;
  EXPECT_EQ(both(sized_chain(), settings), (DataTraffic{{6, 704 * 2}, {4, 512 * 2}, {4, 256 * 2}}));
  settings.reduce = DType::float64;
  settings.bf16_hook = false;
  EXPECT_EQ(both(sized_chain(), settings).scatter, (DataTraffic::Entry{4, 512 * 8}));
}

// Buckets fill with gradients as they lie in memory, whatever the hook makes of them.
TEST(DataTraffic, TheHookDoesNotMoveTheBoundsOfBuckets) {
  auto settings = settings_of("dp=2", 0);
  settings.policy.bucket_bytes = 1024;
  settings.bf16_hook = true;
  EXPECT_EQ(both(sized_chain(), settings).sum, (DataTraffic::Entry{2, 512 * 2}));
}

TEST(DataTraffic, PaddingTravelsToo) {
  auto graph = sized_chain();
  graph.units[1].parameters[0].shape = {1};
  EXPECT_EQ(both(graph, settings_of("fsdp=4", 3)).scatter, (DataTraffic::Entry{4, (128 + 128 + 128 + 256) * 4}));
}

TEST(DataTraffic, ATiedBufferIsGatheredUnlessAnotherUserHoldsIt) {
  const auto graph = sized_chain(true);
  auto settings = settings_of("fsdp=2", 3);
  EXPECT_EQ(traffic_of(graph, settings), (DataTraffic{{6, (3 * 128 + 3 * 64) * 4}, {3, 256 * 4}, {}}));
  settings.policy.limit_all_gathers = 4;
  EXPECT_EQ(traffic_of(graph, settings), (DataTraffic{{3, (128 + 2 * 64) * 4}, {3, 256 * 4}, {}}));
}

TEST(DataTraffic, FrozenBuffersAreGatheredForTheirUsesAndNeverSummed) {
  auto graph = sized_chain();
  test::freeze_unit(graph, "embed");
  test::freeze_unit(graph, "layers.0");
  // Below the first trainable unit nothing is read in backward.
  EXPECT_EQ(traffic_of(graph, settings_of("fsdp=2", 3)), (DataTraffic{{4, 512 * 4}, {2, 320 * 4}, {}}));
  EXPECT_EQ(traffic_of(graph, settings_of("fsdp=2", 1)), (DataTraffic{{2, 320 * 4}, {1, 320 * 4}, {}}));
  EXPECT_EQ(traffic_of(graph, settings_of("dp=2", 0)), (DataTraffic{{}, {}, {1, 320 * 4}}));
  auto above = sized_chain();
  test::freeze_unit(above, "layers.1");
  EXPECT_EQ(traffic_of(above, settings_of("fsdp=2", 3)), (DataTraffic{{6, 704 * 4}, {3, 448 * 4}, {}}));
}

TEST(DataTraffic, TheFormulaRefusesWhatItDoesNotCover) {
  const auto refusal = [](const GraphSpec& graph, const DataSettings& settings) {
    return error_text<InternalError>([&] { test::one_stage_traffic(graph, settings); });
  };
  EXPECT_NE(refusal(sized_chain(true), settings_of("fsdp=2", 3)).find("does not cover buffer embed.tied"),
            std::string::npos);
  auto settings = settings_of("fsdp=2", 3);
  settings.unit_groups = {0, 1, 0, 1, 2};
  EXPECT_NE(refusal(sized_chain(), settings).find("needs groups of neighbours; unit layers.1 is in 0"),
            std::string::npos);
}

TEST(DataActions, RefusesGroupsThatAreNotDoneWithAMicrobatchTogether) {
  const auto graph = test::sized_chain();
  auto settings = test::settings_of("fsdp=2", 3);
  settings.policy.accumulate_sharded = true;
  settings.microbatches = 2;
  // Two stages, one after the other: head and loss run both microbatches before the rest does.
  std::vector<Action> lowered;
  for (int m = 0; m < 2; ++m) {
    for (int u = 0; u < 5; ++u) lowered.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = m});
  }
  for (const auto& [last, first] : {std::pair(4, 3), std::pair(2, 0)}) {
    for (int m = 0; m < 2; ++m) {
      for (int u = last; u >= first; --u) {
        lowered.push_back({.kind = ActionKind::backward, .unit = u, .microbatch = m});
        if (m == 1 && u < 4) lowered.push_back({.kind = ActionKind::reduce, .unit = u});
      }
    }
  }
  EXPECT_NO_THROW(data_actions(lowered, graph, settings));
  settings.unit_groups = {0, 1, 2, 0, 3};  // the first unit and the head, on different stages
  EXPECT_EQ(error_text<ConfigError>([&] { data_actions(lowered, graph, settings); }),
            "parallel.units joins head with units whose gradients of microbatch 0 come later in this schedule than its "
            "next microbatch\n  fix: use parallel.accumulate=full, or groups inside one stage");
  settings.policy.accumulate_sharded = false;
  EXPECT_NO_THROW(data_actions(lowered, graph, settings));
}

}  // namespace data_traffic_test
}  // namespace orthant
