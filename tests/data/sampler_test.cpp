#include "orthant/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "mesh/thrown_error.h"
#include "orthant/base/permutation.h"

namespace orthant {
namespace sampler_test {

using test::thrown_text;

std::vector<std::int64_t> samples_of_epoch(const Sampler& sampler, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const StepRows rows = sampler.at(epoch * sampler.steps_per_epoch() + step);
    EXPECT_EQ(rows.epoch, epoch);
    EXPECT_EQ(rows.last_of_epoch, step + 1 == sampler.steps_per_epoch());
    samples.insert(samples.end(), rows.samples.begin(), rows.samples.end());
  }
  return samples;
}

TEST(Sampler, AnEpochVisitsEverySampleOnceInTheOrderOfThePermutation) {
  for (const std::int64_t batch : {1, 4, 7, 10, 22, 23}) {
    SCOPED_TRACE(testing::Message() << "batch " << batch);
    const Sampler sampler(23, batch, 5);
    for (const std::int64_t epoch : {0, 1, 6}) {
      const Permutation order(23, 5, static_cast<std::uint64_t>(epoch));
      std::vector<std::int64_t> expected;
      for (std::uint64_t i = 0; i < 23; ++i) expected.push_back(static_cast<std::int64_t>(order(i)));
      EXPECT_EQ(samples_of_epoch(sampler, epoch), expected);
      std::ranges::sort(expected);
      std::vector<std::int64_t> all(23);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(expected, all);
    }
  }
}

TEST(Sampler, TheLastBatchOfAnEpochHoldsWhatIsLeft) {
  const Sampler sampler(10, 4, 0);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.at(1).samples.size(), 4U);
  EXPECT_EQ(sampler.at(2).samples.size(), 2U);
  EXPECT_TRUE(sampler.at(2).last_of_epoch);
  EXPECT_EQ(sampler.at(3).epoch, 1);
  EXPECT_EQ(sampler.at(3).samples.size(), 4U);
}

TEST(Sampler, AWholeNumberOfBatchesLeavesNoSmallOne) {
  const Sampler sampler(12, 4, 0);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.at(2).samples.size(), 4U);
  EXPECT_TRUE(sampler.at(2).last_of_epoch);
}

TEST(Sampler, OrderDependsOnSeedAndEpoch) {
  const Sampler sampler(64, 64, 1);
  EXPECT_NE(sampler.at(0).samples, sampler.at(1).samples);
  EXPECT_NE(sampler.at(0).samples, Sampler(64, 64, 2).at(0).samples);
  EXPECT_EQ(sampler.at(3).samples, Sampler(64, 64, 1).at(3).samples);
}

TEST(Sampler, RefusesWhatCannotBeSampled) {
  EXPECT_EQ(thrown_text<DataError>([] { Sampler(0, 1, 0); }), "the data set is empty\ngive it at least one sample");
  EXPECT_EQ(thrown_text<ConfigError>([] { Sampler(12, 16, 0); }),
            "the global batch size is 16, but the data set has 12 samples\n"
            "set train.global_batch_size to at most 12, or give more data");
  EXPECT_EQ(thrown_text<ConfigError>([] { Sampler(12, 0, 0); }),
            "the global batch size is 0, but a step needs at least one sample\n"
            "set train.global_batch_size from 1 to 12");
  EXPECT_THROW(Sampler(12, 4, 0).at(-1), InternalError);
}

}  // namespace sampler_test
}  // namespace orthant
