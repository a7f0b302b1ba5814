#include "orthant/train/evaluation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error_text.h"

namespace orthant {
namespace evaluation_test {

struct Batch {
  at::Tensor logits;
  at::Tensor labels;
};

// Logits of few distinct values, so that ties are common; some labels are to be ignored.
Batch random_batch(std::mt19937_64& random, std::int64_t rows, std::int64_t classes) {
  Batch batch{at::empty({rows, classes}, at::kDouble), at::empty({rows}, at::kLong)};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < classes; ++c) batch.logits[i][c] = static_cast<double>(random() % 9) / 2 - 2;
    batch.labels[i] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(classes + 1)) - 1;
  }
  return batch;
}

double at(const Batch& batch, std::int64_t row, std::int64_t c) {
  return batch.logits[row][c].item<double>();
}

std::int64_t label(const Batch& batch, std::int64_t row) {
  return batch.labels[row].item<std::int64_t>();
}

std::int64_t answer(const Batch& batch, std::int64_t row) {
  std::int64_t best = 0;
  for (std::int64_t c = 1; c < batch.logits.size(1); ++c) {
    if (at(batch, row, c) > at(batch, row, best)) best = c;
  }
  return best;
}

double f1_of(const Batch& batch, std::int64_t c, bool& occurs) {
  double true_positive = 0;
  double false_positive = 0;
  double false_negative = 0;
  for (std::int64_t i = 0; i < batch.labels.size(0); ++i) {
    if (label(batch, i) < 0) continue;
    const bool is = label(batch, i) == c;
    const bool said = answer(batch, i) == c;
    true_positive += is && said ? 1 : 0;
    false_positive += !is && said ? 1 : 0;
    false_negative += is && !said ? 1 : 0;
  }
  occurs = true_positive + false_positive + false_negative > 0;
  if (true_positive == 0) return 0;
  const double precision = true_positive / (true_positive + false_positive);
  const double recall = true_positive / (true_positive + false_negative);
  return 2 * precision * recall / (precision + recall);
}

// Every metric from its definition, row by row and pair by pair.
EvalMetrics brute_force(const Batch& batch) {
  const std::int64_t classes = batch.logits.size(1);
  double rows = 0;
  double loss = 0;
  double right = 0;
  double pairs = 0;
  double won = 0;
  for (std::int64_t i = 0; i < batch.labels.size(0); ++i) {
    if (label(batch, i) < 0) continue;
    rows += 1;
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(at(batch, i, c));
    loss += std::log(sum) - at(batch, i, label(batch, i));
    right += answer(batch, i) == label(batch, i) ? 1 : 0;
    for (std::int64_t j = 0; classes == 2 && label(batch, i) == 1 && j < batch.labels.size(0); ++j) {
      if (label(batch, j) != 0) continue;
      const double lead = (at(batch, i, 1) - at(batch, i, 0)) - (at(batch, j, 1) - at(batch, j, 0));
      pairs += 1;
      won += lead > 0 ? 1 : lead == 0 ? 0.5 : 0;
    }
  }
  EvalMetrics result = {{"loss", loss / rows}, {"accuracy", right / rows}};
  double f1_sum = 0;
  double seen = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    bool occurs = false;
    const double f1 = f1_of(batch, c, occurs);
    f1_sum += f1;
    seen += occurs ? 1 : 0;
    if (classes == 2 && c == 1) result["f1"] = f1;
  }
  result["f1_macro"] = f1_sum / seen;
  if (classes == 2) result["roc_auc"] = won / pairs;
  return result;
}

void expect_equal(const EvalMetrics& found, const EvalMetrics& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, value] : expected) {
    ASSERT_EQ(found.count(name), 1U) << what << ": " << name;
    EXPECT_NEAR(found.at(name), value, 1e-12) << what << ": " << name;
  }
}

TEST(ClassificationTally, EqualsBruteForce) {
  std::mt19937_64 random(11);
  for (std::int64_t classes : {2, 3, 7}) {
    for (int round = 0; round < 6; ++round) {
      const Batch batch = random_batch(random, 40 + round, classes);
      ClassificationTally tally(classes);
      tally.add(batch.logits, batch.labels);
      expect_equal(tally.result(), brute_force(batch), fmt::format("{} classes, round {}", classes, round));
    }
  }
}

TEST(ClassificationTally, BatchesAndRanksMayBeCutAnyhow) {
  std::mt19937_64 random(12);
  for (std::int64_t classes : {2, 4}) {
    const Batch batch = random_batch(random, 60, classes);
    ClassificationTally left(classes);
    ClassificationTally right(classes);
    left.add(batch.logits.narrow(0, 0, 13), batch.labels.narrow(0, 0, 13));
    left.add(batch.logits.narrow(0, 13, 0), batch.labels.narrow(0, 13, 0));
    right.add(batch.logits.narrow(0, 13, 40), batch.labels.narrow(0, 13, 40));
    left.add(batch.logits.narrow(0, 53, 7), batch.labels.narrow(0, 53, 7));
    ClassificationTally together(classes);
    together.add_state(left.state());
    together.add_state(right.state());
    expect_equal(together.result(), brute_force(batch), fmt::format("{} classes", classes));
    EXPECT_EQ(together.rows(), batch.labels.ge(0).sum().item<std::int64_t>());
  }
}

TEST(ClassificationTally, TakesOtherDtypesAndStrides) {
  std::mt19937_64 random(13);
  const Batch batch = random_batch(random, 30, 3);  // halves are exact in every dtype
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    ClassificationTally tally(3);
    tally.add(batch.logits.t().contiguous().t().to(dtype), batch.labels.to(at::kInt));
    expect_equal(tally.result(), brute_force(batch), c10::toString(dtype));
  }
}

TEST(ClassificationTally, IsNanWithoutRows) {
  ClassificationTally tally(2);
  tally.add(at::zeros({3, 2}), at::full({3}, -100, at::kLong));
  EXPECT_EQ(tally.rows(), 0);
  for (const auto& [name, value] : tally.result()) EXPECT_TRUE(std::isnan(value)) << name << " " << value;
}

TEST(ClassificationTally, ANanLogitShowsInLossAndArea) {
  ClassificationTally tally(2);
  at::Tensor logits = at::zeros({4, 2});
  logits[1][0] = std::nan("");
  tally.add(logits, at::tensor({0, 1, 0, 1}, at::kLong));
  EXPECT_TRUE(std::isnan(tally.result().at("loss")));
  EXPECT_TRUE(std::isnan(tally.result().at("roc_auc")));
}

TEST(ClassificationTally, RefusesALabelThatIsNoClass) {
  ClassificationTally tally(3);
  const std::string text = error_text<DataError>([&] { tally.add(at::zeros({2, 3}), at::tensor({0, 3}, at::kLong)); });
  EXPECT_NE(text.find("found label 3, the model has 3 classes (0 to 2)"), std::string::npos) << text;
  EXPECT_NE(text.find("give the model at least 4 classes"), std::string::npos) << text;
}

TEST(ClassificationTally, RefusesOtherShapes) {
  ClassificationTally tally(3);
  const at::Tensor labels = at::zeros({2}, at::kLong);
  EXPECT_THROW(tally.add(at::zeros({2, 4}), labels), InternalError);
  EXPECT_THROW(tally.add(at::zeros({3, 3}), labels), InternalError);
  EXPECT_THROW(tally.add(at::zeros({2, 3}), at::zeros({2})), InternalError);
  EXPECT_THROW(tally.add_state(at::zeros({4}, at::kDouble)), InternalError);
  EXPECT_THROW(ClassificationTally(1), InternalError);
}

TEST(RocAuc, OfPerfectReversedAndConstantScores) {
  EXPECT_EQ(roc_auc({3, 4}, {1, 2}), 1);
  EXPECT_EQ(roc_auc({1, 2}, {3, 4}), 0);
  EXPECT_EQ(roc_auc({1, 1, 1}, {1, 1}), 0.5);
  EXPECT_EQ(roc_auc({1, 3}, {2}), 0.5);
  EXPECT_TRUE(std::isnan(roc_auc({}, {1})));
  EXPECT_TRUE(std::isnan(roc_auc({1}, {})));
}

TEST(LanguageTally, EqualsTheMeanOverCountedTargets) {
  std::mt19937_64 random(14);
  // More elements than one chunk holds.
  const std::int64_t vocabulary = 30011;
  const at::Tensor logits = at::arange(40 * vocabulary, at::kDouble).mul(0.7).sin().mul(3).view({40, vocabulary});
  at::Tensor targets = at::empty({40}, at::kLong);
  for (int i = 0; i < 40; ++i) {
    targets[i] = i % 5 == 0 ? -100 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocabulary));
  }
  double loss = 0;
  for (int i = 0; i < 40; ++i) {
    if (i % 5 == 0) continue;
    loss -= logits[i].log_softmax(0)[targets[i].item<std::int64_t>()].item<double>();
  }
  LanguageTally tally;
  tally.add(logits, targets);
  EXPECT_NEAR(tally.result().at("loss"), loss / 32, 1e-12);
  EXPECT_NEAR(tally.result().at("perplexity"), std::exp(loss / 32), 1e-7);
}

TEST(LanguageTally, AddsSumsAndStates) {
  LanguageTally left;
  LanguageTally right;
  left.add(6, 2);
  right.add(3, 1);
  right.add(9, 3);
  left.add_state(right.state());
  EXPECT_DOUBLE_EQ(left.result().at("loss"), 3);
  EXPECT_DOUBLE_EQ(left.result().at("perplexity"), std::exp(3.0));
  EXPECT_TRUE(std::isnan(LanguageTally().result().at("loss")));
}

}  // namespace evaluation_test
}  // namespace orthant
