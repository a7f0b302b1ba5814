// What an evaluation measures, accumulated batch by batch: counts and sums, and for two classes one score per row (the
// area under the ROC curve needs their ranks). A rank tallies the rows it sees; state() of every rank, added to one
// tally, gives the global result. Nothing here communicates.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orthant/train/metrics.h"

namespace at {
class Tensor;
}

namespace orthant {

// The area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half. NaN
// without a row of either kind, or with a NaN among the scores.
double roc_auc(const std::vector<double>& positive_scores, const std::vector<double>& negative_scores);

// Rows of `num_classes` logits against one label each. A row's answer is its largest logit (the first of equals).
class ClassificationTally {
 public:
  // InternalError below two classes.
  explicit ClassificationTally(std::int64_t num_classes);

  // logits [rows, classes] floating, labels [rows] integral; negative labels are ignored. Tensors on a device are
  // copied to the host. InternalError on other shapes, DataError on a label that is no class.
  void add(const at::Tensor& logits, const at::Tensor& labels);

  // Everything added so far as a float64 vector, for sending; add_state() adds another tally's.
  at::Tensor state() const;
  void add_state(const at::Tensor& state);

  std::int64_t rows() const;

  // "loss": mean cross-entropy, unweighted; "accuracy"; "f1_macro": mean F1 of the classes that occur among labels or
  // answers; for two classes "f1" of class 1 and "roc_auc" of logit 1 - logit 0. NaN where there is nothing to measure.
  EvalMetrics result() const;

 private:
  std::int64_t num_classes_;
  double loss_sum_ = 0;
  std::vector<std::int64_t> hits_;     // per class: rows of that label answered so
  std::vector<std::int64_t> labels_;   // rows of that label
  std::vector<std::int64_t> answers_;  // rows answered so
  std::vector<double> positive_scores_;
  std::vector<double> negative_scores_;
};

// The mean loss of predicted tokens.
class LanguageTally {
 public:
  // A sum of losses and the weight (number of targets) it was taken over, as a loss unit returns them.
  void add(double loss_sum, double weight);

  // logits [rows, vocabulary], targets [rows], negative ones ignored; otherwise as ClassificationTally::add().
  void add(const at::Tensor& logits, const at::Tensor& targets);

  at::Tensor state() const;
  void add_state(const at::Tensor& state);

  // "loss" and "perplexity", its exponential; NaN without targets.
  EvalMetrics result() const;

 private:
  double loss_sum_ = 0;
  double weight_ = 0;
};

}  // namespace orthant
