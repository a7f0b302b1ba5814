// An evaluation over stages measures what one rank measures, to the bit, on every rank.
#include <gtest/gtest.h>

#include <bit>
#include <mutex>

#include "orthant/train/evaluation_pass.h"
#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"
#include "train/training_ranks.h"

namespace orthant {
namespace pipeline_evaluation_test {

// The rows of a batch as a data set.
class BatchRows : public Dataset {
 public:
  explicit BatchRows(Fields fields) : fields_(std::move(fields)) {}
  std::int64_t size() const override { return fields_.begin()->second.size(0); }
  Fields rows(std::span<const std::int64_t> indices) const override {
    const auto places = at::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), at::kLong);
    Fields found;
    for (const auto& [name, field] : fields_) found[name] = field.index_select(0, places);
    return found;
  }

 private:
  Fields fields_;
};

void expect_same_bits(const EvalMetrics& found, const EvalMetrics& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(found.at(name)), std::bit_cast<std::uint64_t>(value))
        << name << " " << found.at(name) << " and not " << value;
  }
}

// Of a language model's loss, and in calls of five rows, so that the last is short.
TEST(PipelineEvaluation, OfALossIsThatOfOneRank) {
  const BatchRows rows(test::branching_batch().fields);
  EvalMetrics expected;
  const auto measure = [&](Trainer& trainer) {
    test::train_steps(trainer, test::branching_batch(), 2);
    return evaluate_dataset(trainer, rows, {.num_labels = 0, .rows = 5, .stop_requested = {}});
  };
  const auto graph = test::branching_spec(2);
  auto options = test::branching_options(2);
  test::on_trainers(graph, test::branching_units, Mesh(), options, [&](Trainer& t) { expected = measure(t); });
  ASSERT_TRUE(expected.contains("perplexity"));
  for (const auto& [pp, schedule] : std::vector<std::pair<int, std::string>>{{2, "1f1b"}, {4, "gpipe"}, {2, "zbv"}}) {
    options.stages = {.schedule = schedule, .split = test::branching_split(schedule == "zbv" ? 2 * pp : pp)};
    test::on_trainers(graph, test::branching_units, Mesh(Degrees{{Axis::pp, pp}}), options, [&](Trainer& trainer) {
      expect_same_bits(measure(trainer), expected);
      // Nothing of it is left for what follows.
      expect_same_bits(evaluate_dataset(trainer, rows, {.num_labels = 0, .rows = 5, .stop_requested = {}}), expected);
    });
  }
}

EvalMetrics classified_on(const RunConfig& run) {
  std::mutex mutex;
  std::vector<EvalMetrics> found;
  on_ranks(run, [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto trainer = make_trainer(config);
    const auto metrics =
        evaluate_dataset(*trainer, *data.train, {.num_labels = data.num_labels, .rows = 3, .stop_requested = {}});
    const std::lock_guard lock(mutex);
    found.push_back(metrics);
  });
  for (const auto& metrics : found) expect_same_bits(metrics, found.front());
  return found.front();
}

// AUC and F1 of a classifier, from the rank that owns the scores.
TEST(PipelineEvaluation, OfAClassifierIsThatOfOneRank) {
  const auto config = [](const char* pp) {
    return small_config("", {"data.samples=40", "train.global_batch_size=10", std::string("mesh.pp=") + pp}, {"dp=1"});
  };
  const auto expected = classified_on(config("1"));
  ASSERT_TRUE(expected.contains("roc_auc"));
  ASSERT_TRUE(expected.contains("f1"));
  for (const char* pp : {"2", "3"}) expect_same_bits(classified_on(config(pp)), expected);
}

TEST(PipelineEvaluation, EndsOnAllStagesWhenOneOfThemIsAskedToStop) {
  const BatchRows rows(test::branching_batch().fields);
  auto options = test::branching_options(2);
  options.stages.split = test::branching_split(3);
  test::on_trainers(
      test::branching_spec(2), test::branching_units, Mesh::parse("pp=3"), options, [&](Trainer& trainer) {
        const auto stop = [&] { return trainer.rank() == 1; };
        EXPECT_TRUE(evaluate_dataset(trainer, rows, {.num_labels = 0, .rows = 1, .stop_requested = stop}).empty());
        EXPECT_FALSE(evaluate_dataset(trainer, rows, {.num_labels = 0, .rows = 1, .stop_requested = {}}).empty());
      });
}

}  // namespace pipeline_evaluation_test
}  // namespace orthant
