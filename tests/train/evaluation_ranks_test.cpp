// An evaluation on many ranks measures what one rank measures.
#include <gtest/gtest.h>

#include <mutex>

#include "orthant/layout/rows.h"
#include "orthant/models/llama/config.h"
#include "orthant/train/evaluation_pass.h"
#include "train/training_ranks.h"

namespace orthant {
namespace evaluation_ranks_test {

// The first rows of another data set.
class FirstRows : public Dataset {
 public:
  FirstRows(std::shared_ptr<const Dataset> all, std::int64_t size) : all_(std::move(all)), size_(size) {}
  std::int64_t size() const override { return size_; }
  Fields rows(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size_);
    return all_->rows(indices);
  }
  double weight_sum(const Fields& fields) const override { return all_->weight_sum(fields); }

 private:
  std::shared_ptr<const Dataset> all_;
  std::int64_t size_;
};

// Of every rank, in no order.
std::vector<EvalMetrics> evaluate_on(const RunConfig& run, std::int64_t size, std::int64_t rows) {
  std::mutex mutex;
  std::vector<EvalMetrics> found;
  on_ranks(run, [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto trainer = make_trainer(config);
    const auto metrics = evaluate_dataset(*trainer, FirstRows(data.train, size),
                                          {.num_labels = data.num_labels, .rows = rows, .stop_requested = {}});
    const std::lock_guard lock(mutex);
    found.push_back(metrics);
  });
  return found;
}

RunConfig tiny_trimodal(const MeshCase& mesh) {
  return small_config("", {"data.samples=48", "train.global_batch_size=12"}, mesh);
}

void compare(const std::function<RunConfig(const MeshCase&)>& config, const std::set<std::string>& names) {
  for (const std::int64_t size : {1, 3, 7, 25}) {
    EvalMetrics expected;
    for (const auto& mesh : kMeshes) {
      SCOPED_TRACE(case_name(mesh) + ", rows " + std::to_string(size));
      for (const auto& found : evaluate_on(config(mesh), size, /*rows=*/2)) {
        if (expected.empty()) expected = found;
        ASSERT_EQ(found.size(), names.size());
        for (const auto& [name, value] : found) {
          EXPECT_TRUE(names.contains(name)) << name;
          if (name == "loss" || name == "perplexity") {
            EXPECT_NEAR(value, expected.at(name), 1e-12 * expected.at(name)) << name;
          } else if (std::isnan(expected.at(name))) {
            EXPECT_TRUE(std::isnan(value)) << name;
          } else {
            EXPECT_EQ(value, expected.at(name)) << name;
          }
        }
      }
    }
  }
}

TEST(EvaluationRanks, OfALanguageModelMeasureWhatOneRankDoes) {
  compare(tiny_llama, {"loss", "perplexity"});
}

TEST(EvaluationRanks, OfAClassifierMeasureWhatOneRankDoes) {
  compare(tiny_trimodal, {"loss", "accuracy", "f1", "f1_macro", "roc_auc"});
}

// First row, rows and values of every microbatch, as rank 0 was given them.
struct Taken {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  std::vector<double> values;
};

Taken taken_on(RunConfig run, std::int64_t size, std::int64_t rows) {
  Taken taken;
  on_ranks(run, [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto trainer = make_trainer(config);
    const auto take = [&](const EvaluatedRows& found) {
      EXPECT_EQ(trainer->rank(), 0);
      taken.rows.emplace_back(found.first_row, found.rows);
      taken.values.insert(taken.values.end(), found.values.begin(), found.values.end());
    };
    evaluate_dataset(*trainer, FirstRows(data.train, size),
                     {.num_labels = data.num_labels, .rows = rows, .stop_requested = {}, .take = take});
  });
  return taken;
}

TEST(EvaluationRanks, HandOutEveryRowOnceInOrder) {
  auto meshes = kMeshes;
  meshes.push_back({"pp=2"});
  meshes.push_back({"pp=2,dp=2"});
  for (const auto& config : {tiny_llama, tiny_trimodal}) {
    Taken expected;
    for (const auto& mesh : meshes) {
      SCOPED_TRACE(case_name(mesh));
      auto run = config(mesh);
      run.mesh = Mesh::parse(mesh.mesh);
      const auto found = taken_on(run, /*size=*/25, /*rows=*/2);
      if (expected.rows.empty()) expected = found;
      ASSERT_EQ(found.rows.size(), 13U);
      for (std::size_t i = 0; i < found.rows.size(); ++i) {
        EXPECT_EQ(found.rows[i], (std::pair<std::int64_t, std::int64_t>(2 * i, i == 12 ? 1 : 2)));
      }
      ASSERT_EQ(found.values.size(), expected.values.size());
      for (std::size_t i = 0; i < found.values.size(); ++i) {
        EXPECT_NEAR(found.values[i], expected.values[i], 1e-12 * std::abs(expected.values[i]) + 1e-13);
      }
    }
  }
}

TEST(EvaluationRanks, AllThrowWhatTheTakerThrows) {
  on_ranks(tiny_llama({"dp=2", 0}), [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto trainer = make_trainer(config);
    const auto full = [](const EvaluatedRows&) { throw DataError("the disk is full"); };
    EXPECT_THROW(evaluate_dataset(*trainer, *data.train, {.rows = 2, .stop_requested = {}, .take = full}), DataError);
  });
}

TEST(EvaluationRanks, OfATrainerThatOnlyEvaluatesMeasureTheSameWithoutGradientsAndState) {
  for (const auto& mesh : {MeshCase{"dp=1"}, MeshCase{"fsdp=2", 3}, MeshCase{"tp=2"}}) {
    SCOPED_TRACE(case_name(mesh));
    const auto trained = evaluate_on(tiny_llama(mesh), 7, 2);
    on_ranks(tiny_llama(mesh), [&](const RunConfig& config) {
      auto frozen = config;
      get<LlamaConfig>(frozen.model).freeze = {"*"};
      frozen.trainer.trains = false;
      auto data_config = config;
      const auto data = make_run_data(data_config);
      const auto trainer = make_trainer(frozen);
      const auto found =
          evaluate_dataset(*trainer, FirstRows(data.train, 7), {.num_labels = 0, .rows = 2, .stop_requested = {}});
      EXPECT_EQ(found.at("loss"), trained.front().at("loss"));
      for (std::size_t b = 0; b < trainer->parameters().buffers().size(); ++b) {
        EXPECT_FALSE(trainer->parameters().buffers()[b]->trainable());
        EXPECT_FALSE(trainer->parameters().buffers()[b]->owned_gradient().defined());
        EXPECT_FALSE(trainer->optimizer().state(0, b).defined());
      }
      const auto batch = make_loader(config, data, 0)->next();
      try {
        trainer->step(batch);
        FAIL() << "it made a step";
      } catch (const ConfigError& error) {
        EXPECT_EQ(error.message(), "a step of a trainer that was made to evaluate alone");
      }
    });
  }
}

TEST(EvaluationRanks, StopWhenOneOfThemIsAskedTo) {
  on_ranks(tiny_llama({"fsdp=3", 3}), [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto trainer = make_trainer(config);
    int asked = 0;
    const auto stop = [&] { return ++asked == 3 && rank_of(config) == 2; };
    EXPECT_TRUE(evaluate_dataset(*trainer, *data.train, {.num_labels = 0, .rows = 2, .stop_requested = stop}).empty());
    EXPECT_EQ(asked, 3);
    // Nobody is left waiting.
    EXPECT_FALSE(evaluate_dataset(*trainer, *data.train, {.num_labels = 0, .rows = 2, .stop_requested = {}}).empty());
  });
}

}  // namespace evaluation_ranks_test
}  // namespace orthant
