#include "orthant/data/loader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "data/same_fields.h"
#include "mesh/thrown_error.h"
#include "orthant/data/fixed_dataset.h"

namespace orthant {
namespace loader_test {

using test::expect_same_batch;
using test::thrown_text;

// Sample i has number i and label i % 2; weights that do not add up exactly show in which order they were added.
std::shared_ptr<const FixedDataset> numbered(std::int64_t size) {
  return std::make_shared<FixedDataset>(
      Fields{{"number", at::arange(size, at::kLong)}, {"labels", at::arange(size, at::kLong).remainder(2)}},
      FieldLimits{.num_labels = 2}, std::vector<double>{0.1, 0.7});
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

TEST(Loader, BatchesDoNotDependOnReadingAhead) {
  const auto data = numbered(23);
  const Sampler sampler(23, 8, 3);
  Loader plain(data, sampler, {.prefetch = 0});
  Loader one_ahead(data, sampler, {.prefetch = 1});
  Loader far_ahead(data, sampler, {.prefetch = 64});
  for (int step = 0; step < 20; ++step) {
    const Batch batch = plain.next();
    EXPECT_EQ(batch.step, step);
    expect_same_batch(batch, one_ahead.next());
    expect_same_batch(batch, far_ahead.next());
  }
}

TEST(Loader, ResumesAtAnyStep) {
  const auto data = numbered(23);
  const Sampler sampler(23, 8, 3);
  std::vector<Batch> batches;
  Loader whole(data, sampler);
  for (int step = 0; step < 9; ++step) batches.push_back(whole.next());
  for (std::int64_t start = 0; start < 8; ++start) {
    Loader resumed(data, sampler, {.start_step = start});
    expect_same_batch(batches[static_cast<std::size_t>(start)], resumed.next());
    expect_same_batch(batches[static_cast<std::size_t>(start) + 1], resumed.next());
  }
}

TEST(Loader, ReplicasShareOutEveryBatchInOrderAndKnowTheSameTotals) {
  const auto data = numbered(23);
  const Sampler sampler(23, 8, 3);
  for (const std::int64_t replicas : {1, 2, 3, 8, 11}) {
    for (std::int64_t step = 0; step < 3; ++step) {
      SCOPED_TRACE(testing::Message() << replicas << " replicas, step " << step);
      const StepRows rows = sampler.at(step);
      const auto count = static_cast<std::int64_t>(rows.samples.size());
      double weight_sum = 0;
      for (const std::int64_t sample : rows.samples) weight_sum += sample % 2 == 0 ? 0.1 : 0.7;
      std::vector<std::int64_t> seen;
      for (std::int64_t replica = 0; replica < replicas; ++replica) {
        Loader loader(data, sampler, {.replicas = replicas, .replica = replica, .start_step = step, .microbatches = 2});
        const Batch batch = loader.next();
        EXPECT_EQ(batch.first_row, static_cast<std::int64_t>(seen.size()));
        for (std::int64_t g = batch.first_row; g < batch.first_row + batch.rows; ++g) {
          EXPECT_EQ(g * replicas / count, replica) << "row " << g;
        }
        EXPECT_EQ(batch.samples, count);
        EXPECT_EQ(batch.weight_sum, weight_sum);
        EXPECT_EQ(batch.fields.at("number").size(0) % 2, 0);
        EXPECT_GE(batch.fields.at("number").size(0), 2);
        const auto numbers = values(batch.fields.at("number"));
        seen.insert(seen.end(), numbers.begin(), numbers.begin() + batch.rows);
      }
      EXPECT_EQ(seen, rows.samples);
    }
  }
}

TEST(Loader, PadsAReplicasRowsToWholeMicrobatchesWithCopiesOfItsLastRow) {
  const Sampler sampler(7, 7, 0);
  Loader loader(numbered(7), sampler, {.microbatches = 3});
  const Batch batch = loader.next();
  const std::vector<std::int64_t> samples = sampler.at(0).samples;
  std::vector<std::int64_t> numbers = samples;
  numbers.insert(numbers.end(), {samples[6], samples[6]});
  std::vector<std::int64_t> labels;
  for (const std::int64_t sample : samples) labels.push_back(sample % 2);
  labels.insert(labels.end(), {-100, -100});
  EXPECT_EQ(batch.rows, 7);
  EXPECT_EQ(batch.samples, 7);
  EXPECT_EQ(values(batch.fields.at("number")), numbers);
  EXPECT_EQ(values(batch.fields.at("labels")), labels);
}

TEST(Loader, AReplicaWithoutRowsRunsPaddingOnly) {
  const Sampler sampler(9, 8, 0);
  const std::int64_t only = sampler.at(1).samples.at(0);
  for (const std::int64_t replica : {0, 1, 2, 3}) {
    Loader loader(numbered(9), sampler, {.replicas = 4, .replica = replica, .start_step = 1, .microbatches = 2});
    const Batch batch = loader.next();
    const bool holds_it = replica == 0;
    EXPECT_TRUE(batch.last_of_epoch);
    EXPECT_EQ(batch.rows, holds_it ? 1 : 0);
    EXPECT_EQ(batch.samples, 1);
    EXPECT_EQ(batch.weight_sum, only % 2 == 0 ? 0.1 : 0.7);
    EXPECT_EQ(values(batch.fields.at("number")), (std::vector<std::int64_t>{only, only}));
    EXPECT_EQ(values(batch.fields.at("labels")), (std::vector<std::int64_t>{holds_it ? only % 2 : -100, -100}));
  }
}

TEST(Loader, FixedMicrobatchRowsGiveEveryStepTheSameShape) {
  Loader loader(numbered(10), Sampler(10, 8, 0), {.replicas = 2, .microbatches = 2, .microbatch_rows = 2});
  for (int step = 0; step < 4; ++step) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch.fields.at("number").size(0), 4) << "step " << step;
    EXPECT_EQ(batch.rows, step % 2 == 0 ? 4 : 1) << "step " << step;
  }
}

// Fails on the batch that holds sample `bad`; counts batches.
class FailingDataset : public Dataset {
 public:
  explicit FailingDataset(std::int64_t bad) : bad_(bad) {}
  std::int64_t size() const override { return 12; }
  Fields rows(std::span<const std::int64_t> indices) const override {
    ++calls;
    if (std::ranges::count(indices, bad_) > 0) throw DataError("sample " + std::to_string(bad_) + " cannot be read");
    return {{"input_ids", at::zeros({static_cast<std::int64_t>(indices.size()), 2}, at::kLong)}};
  }
  mutable std::atomic<int> calls = 0;

 private:
  std::int64_t bad_;
};

TEST(Loader, AnErrorWhileReadingIsThrownWhenItsStepIsAskedForAndAfter) {
  const Sampler sampler(12, 4, 0);
  for (const std::int64_t prefetch : {0, 1, 8}) {
    Loader loader(std::make_shared<FailingDataset>(sampler.at(2).samples[1]), sampler, {.prefetch = prefetch});
    EXPECT_EQ(loader.next().tokens, 8);
    EXPECT_EQ(loader.next().step, 1);
    const std::string text = "sample " + std::to_string(sampler.at(2).samples[1]) + " cannot be read\n";
    EXPECT_EQ(thrown_text<DataError>([&] { loader.next(); }), text);
    EXPECT_EQ(thrown_text<DataError>([&] { loader.next(); }), text);
  }
}

TEST(Loader, ReadsNoFurtherThanAskedForAndStopsUnread) {
  const auto data = std::make_shared<FailingDataset>(-1);
  {
    Loader loader(data, Sampler(12, 4, 0), {.prefetch = 3});
    for (int step = 0; step < 5; ++step) loader.next();
  }
  EXPECT_GE(data->calls, 5);
  EXPECT_LE(data->calls, 5 + 3);
  {
    Loader never_asked(data, Sampler(12, 4, 0));
  }
  EXPECT_LE(data->calls, 5 + 3 + 2);
}

TEST(Loader, RefusesOptionsThatNoBatchCanFulfil) {
  const auto data = numbered(12);
  const Sampler sampler(12, 10, 0);
  EXPECT_EQ(thrown_text([&] { Loader(data, sampler, {.microbatches = 0}); }),
            "microbatches is 0, but a step needs at least one\nset parallel.microbatches to 1 or more");
  EXPECT_EQ(thrown_text([&] { Loader(data, sampler, {.replicas = 3, .microbatches = 2, .microbatch_rows = 1}); }),
            "a global batch of 10 over 3 replicas is up to 4 rows a replica, but 2 microbatches of 1 rows hold 2\n"
            "set microbatch_rows to 2");
  EXPECT_EQ(thrown_text([&] { Loader(data, sampler, {.prefetch = -1}); }),
            "prefetch is -1 and microbatch_rows is 0, but neither may be below 0\n"
            "set 0 for no reading ahead, and 0 for as few rows as needed");
  EXPECT_THROW(Loader(data, sampler, {.replicas = 2, .replica = 2}), InternalError);
  EXPECT_THROW(Loader(data, sampler, {.start_step = -1}), InternalError);
  EXPECT_THROW(Loader(data, Sampler(13, 10, 0)), InternalError);
}

}  // namespace loader_test
}  // namespace orthant
