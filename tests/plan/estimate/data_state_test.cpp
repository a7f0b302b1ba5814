#include "orthant/plan/estimate/data_state.h"

#include <gtest/gtest.h>

#include "plan/estimate/data_graphs.h"

namespace orthant {

// For gtest's messages.
static void PrintTo(const DataState& state, std::ostream* out) {
  *out << "parameters " << state.parameters << ", compute " << state.compute << ", gradients " << state.gradients
       << ", optimizer " << state.optimizer;
}

static void PrintTo(const DataPeaks& peaks, std::ostream* out) {
  *out << "gathered " << peaks.gathered << ", gradients " << peaks.gradients;
}

namespace data_state_test {

using test::settings_of;
using test::sized_chain;

DataPeaks peaks_of(const GraphSpec& graph, const DataSettings& settings) {
  return data_peaks(graph, settings, test::one_stage_actions(graph, settings));
}

TEST(DataState, AdamWInFloat32CostsSixteenBytesPerParameterOverTheShards) {
  const auto graph = sized_chain();
  EXPECT_EQ(data_state(graph, settings_of("dp=2", 0)), (DataState{0, 512 * 4, 512 * 4, 512 * 8}));
  EXPECT_EQ(data_state(graph, settings_of("dp=2", 0)).total(), 16 * 512);
  const auto sharded = settings_of("dp=2,fsdp=2", parse_zero("FULL_SHARD"));
  EXPECT_EQ(data_state(graph, sharded), (DataState{256 * 4, 0, 256 * 4, 256 * 8}));
  EXPECT_EQ(data_state(graph, sharded).total(), 16 / 2 * 512);
}

TEST(DataState, EachStageShardsOneThingMore) {
  const auto graph = sized_chain();
  const auto state = [&](const char* zero) { return data_state(graph, settings_of("fsdp=2", parse_zero(zero))); };
  EXPECT_EQ(state("NO_SHARD"), (DataState{0, 512 * 4, 512 * 4, 512 * 8}));
  EXPECT_EQ(state("1"), (DataState{0, 512 * 4, 512 * 4, 256 * 8}));
  EXPECT_EQ(state("SHARD_GRAD_OP"), (DataState{0, 512 * 4, 256 * 4, 256 * 8}));
  EXPECT_EQ(state("FULL_SHARD"), (DataState{256 * 4, 0, 256 * 4, 256 * 8}));
}

TEST(DataState, AComputeDtypeOfItsOwnAddsAMasterCopy) {
  for (int zero = 0; zero <= 3; ++zero) {
    auto settings = settings_of("fsdp=2", zero);
    settings.compute = DType::bfloat16;
    settings.reduce = DType::bfloat16;
    const std::int64_t owned = zero == 0 ? 512 : 256;
    EXPECT_EQ(data_state(sized_chain(), settings),
              (DataState{owned * 4, zero == 3 ? 0 : 512 * 2, (zero >= 2 ? 256 : 512) * 2, owned * 8}))
        << "zero " << zero;
  }
}

TEST(DataState, OtherOptimizersKeepOtherCopies) {
  auto settings = settings_of("fsdp=2", 3);
  settings.optimizer_copies = 0;
  EXPECT_EQ(data_state(sized_chain(), settings).optimizer, 0);
  settings.optimizer_copies = 1;
  EXPECT_EQ(data_state(sized_chain(), settings).optimizer, 256 * 4);
}

TEST(DataState, TiedGradientsCountPerUseAndFrozenBuffersHaveNone) {
  EXPECT_EQ(data_state(sized_chain(true), settings_of("dp=2", 0)),
            (DataState{0, 256 * 4, (2 * 128 + 128) * 4, 256 * 8}));
  EXPECT_EQ(data_state(sized_chain(true), settings_of("fsdp=2", 2)).gradients, 128 * 4);
  auto frozen = sized_chain();
  test::freeze_unit(frozen, "head");
  EXPECT_EQ(data_state(frozen, settings_of("fsdp=2", 3)), (DataState{256 * 4, 0, 128 * 4, 128 * 8}));
}

TEST(DataState, OffloadedCopiesAreNoPartOfWhatProductsRead) {
  auto settings = settings_of("fsdp=2", 1);
  settings.policy.offload = Offload::optimizer;
  EXPECT_EQ(data_state(sized_chain(), settings), (DataState{256 * 4, 512 * 4, 512 * 4, 256 * 8}));
  settings = settings_of("fsdp=2", 3);
  settings.policy.offload = Offload::optimizer;
  EXPECT_EQ(data_state(sized_chain(), settings), (DataState{256 * 4, 256 * 4, 256 * 4, 256 * 8}));
  settings.policy.offload = Offload::params;
  EXPECT_EQ(data_state(sized_chain(), settings), (DataState{256 * 4, 0, 256 * 4, 256 * 8}));
}

TEST(DataPeaks, WholeStateHasNone) {
  EXPECT_EQ(peaks_of(sized_chain(), settings_of("dp=2", 0)), DataPeaks{});
  EXPECT_EQ(peaks_of(sized_chain(), settings_of("fsdp=2", 1)), DataPeaks{});
}

TEST(DataPeaks, TwoGroupsAreFullAndTwoReductionsAlive) {
  EXPECT_EQ(peaks_of(sized_chain(), settings_of("fsdp=2", 3)), (DataPeaks{(256 + 64) * 4, (256 + 64) * 4}));
  EXPECT_EQ(peaks_of(sized_chain(), settings_of("fsdp=2", 2)), (DataPeaks{0, (256 + 64) * 4}));
  auto settings = settings_of("fsdp=2", 3);
  settings.policy.limit_all_gathers = 1;
  EXPECT_EQ(peaks_of(sized_chain(), settings).gathered, 256 * 4);
  settings.policy.limit_all_gathers = 3;  // both layers and head
  EXPECT_EQ(peaks_of(sized_chain(), settings).gathered, (64 + 64 + 256) * 4);
  settings.policy.limit_all_gathers = 1;
  settings.policy.keep_gathered = true;
  EXPECT_EQ(peaks_of(sized_chain(), settings).gathered, 512 * 4);
}

TEST(DataPeaks, GroupsLiveTogether) {
  auto settings = settings_of("fsdp=2", 3);
  settings.unit_groups = {0, 0, 1, 1, 2};
  // Both groups are full at once; the gradients of the first are made while those of the second travel.
  EXPECT_EQ(peaks_of(sized_chain(), settings), (DataPeaks{512 * 4, 512 * 4}));
  settings.unit_groups = {0, 1, 1, 2, 3};
  // head with layers.0 and layers.1; then embed with those.
  EXPECT_EQ(peaks_of(sized_chain(), settings), (DataPeaks{(128 + 256) * 4, (128 + 256) * 4}));
}

TEST(DataPeaks, FullAccumulationKeepsAllGradientsShardedOnlyThoseUnderWay) {
  auto settings = settings_of("fsdp=2", 3);
  settings.microbatches = 2;
  EXPECT_EQ(peaks_of(sized_chain(), settings).gradients, 512 * 4);
  settings.policy.accumulate_sharded = true;
  EXPECT_EQ(peaks_of(sized_chain(), settings).gradients, (128 + 256) * 4);  // embed travels while head is made
}

TEST(DataPeaks, GradientsOfOneGroupAloneAreNeverThereTwice) {
  auto settings = settings_of("fsdp=2", 3);
  settings.unit_groups = {0, 0, 0, 0, 0};
  settings.microbatches = 3;
  settings.policy.accumulate_sharded = true;
  EXPECT_EQ(peaks_of(sized_chain(), settings), (DataPeaks{512 * 4, 512 * 4}));
}

TEST(DataPeaks, ATiedBufferIsGatheredOnceAndHasAGradientPerUse) {
  auto settings = settings_of("fsdp=2", 3);
  // embed's and head's, while layers.0's travel.
  EXPECT_EQ(peaks_of(sized_chain(true), settings).gradients, (128 + 128 + 64) * 4);
  settings.policy.limit_all_gathers = 4;
  EXPECT_EQ(peaks_of(sized_chain(true), settings).gathered, (128 + 64 + 64) * 4);
}

}  // namespace data_state_test
}  // namespace orthant
