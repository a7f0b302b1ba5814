#include "orthant/train/evaluation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/train/shape_text.h"

namespace orthant {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Rows of logits that are turned into float64 at a time.
constexpr std::int64_t kChunkElements = 1 << 19;

void check_shapes(const at::Tensor& logits, const at::Tensor& labels) {
  const bool fit = logits.dim() == 2 && labels.dim() == 1 && logits.size(0) == labels.size(0);
  if (!fit || !logits.is_floating_point() || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) {
    throw InternalError(fmt::format(
        "evaluation: logits {} of {} and labels {} of {} are not [rows, classes] and [rows]", shape_text(logits),
        c10::toString(logits.scalar_type()), shape_text(labels), c10::toString(labels.scalar_type())));
  }
}

void check_labels(const at::Tensor& labels, std::int64_t num_classes) {
  if (labels.numel() == 0) return;
  const auto largest = labels.max().item<std::int64_t>();
  if (largest >= num_classes) {
    throw DataError(
        fmt::format("evaluation: found label {}, the model has {} classes (0 to {})", largest, num_classes,
                    num_classes - 1),
        {.remedy = fmt::format("give the model at least {} classes, or mend the labels; negative labels are "
                               "ignored",
                               largest + 1)});
  }
}

// Rows whose label counts, on the host.
struct Rows {
  at::Tensor logits;  // float64 [rows, classes]
  at::Tensor labels;  // int64 [rows]
};

// Calls `act` with the rows that count, some at a time.
template <typename Action>
void for_each_chunk(const at::Tensor& logits, const at::Tensor& labels, const Action& act) {
  check_shapes(logits, labels);
  at::NoGradGuard no_grad;
  const at::Tensor all_labels = labels.to(at::kCPU, at::kLong);
  check_labels(all_labels, logits.size(1));
  const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, logits.size(1)));
  for (std::int64_t begin = 0; begin < logits.size(0); begin += step) {
    const std::int64_t length = std::min(step, logits.size(0) - begin);
    const at::Tensor chunk_labels = all_labels.narrow(0, begin, length);
    const at::Tensor counted = chunk_labels.ge(0).nonzero().squeeze(1);
    if (counted.numel() == 0) continue;
    const at::Tensor chunk = logits.narrow(0, begin, length).to(at::kCPU).index_select(0, counted).to(at::kDouble);
    act(Rows{chunk, chunk_labels.index_select(0, counted)});
  }
}

double cross_entropy_sum(const Rows& rows) {
  const at::Tensor picked = rows.logits.gather(1, rows.labels.unsqueeze(1)).squeeze(1);
  return (rows.logits.logsumexp(1) - picked).sum().item<double>();
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

void check_state(const at::Tensor& state, std::int64_t least) {
  if (state.dim() != 1 || state.scalar_type() != at::kDouble || state.numel() < least) {
    throw InternalError(fmt::format("evaluation: a state of shape {} is not one of this tally (at least {} doubles)",
                                    shape_text(state), least));
  }
}

}  // namespace

double roc_auc(const std::vector<double>& positive_scores, const std::vector<double>& negative_scores) {
  if (positive_scores.empty() || negative_scores.empty()) return kNothing;
  struct Scored {
    double score;
    bool positive;
  };
  std::vector<Scored> rows;
  rows.reserve(positive_scores.size() + negative_scores.size());
  for (double score : positive_scores) rows.push_back({score, true});
  for (double score : negative_scores) rows.push_back({score, false});
  if (std::any_of(rows.begin(), rows.end(), [](const Scored& row) { return std::isnan(row.score); })) return kNothing;
  std::sort(rows.begin(), rows.end(), [](const Scored& left, const Scored& right) { return left.score < right.score; });
  // Pairs won by the positive row, twice, so that ties are whole numbers.
  double won_twice = 0;
  double negatives_below = 0;
  for (std::size_t begin = 0; begin < rows.size();) {
    double positives = 0;
    double negatives = 0;
    std::size_t end = begin;
    for (; end < rows.size() && rows[end].score == rows[begin].score; ++end)
      (rows[end].positive ? positives : negatives) += 1;
    won_twice += positives * (2 * negatives_below + negatives);
    negatives_below += negatives;
    begin = end;
  }
  return won_twice / (2 * static_cast<double>(positive_scores.size()) * static_cast<double>(negative_scores.size()));
}

ClassificationTally::ClassificationTally(std::int64_t num_classes) : num_classes_(num_classes) {
  if (num_classes < 2)
    throw InternalError(fmt::format("evaluation: {} classes; at least 2 can be told apart", num_classes));
  hits_.resize(static_cast<std::size_t>(num_classes));
  labels_.resize(static_cast<std::size_t>(num_classes));
  answers_.resize(static_cast<std::size_t>(num_classes));
}

void ClassificationTally::add(const at::Tensor& logits, const at::Tensor& labels) {
  if (logits.dim() == 2 && logits.size(1) != num_classes_) {
    throw InternalError(fmt::format("evaluation: logits {} for {} classes", shape_text(logits), num_classes_));
  }
  for_each_chunk(logits, labels, [&](const Rows& rows) {
    loss_sum_ += cross_entropy_sum(rows);
    const at::Tensor answers = rows.logits.argmax(1);
    const auto* label = rows.labels.const_data_ptr<std::int64_t>();
    const auto* answer = answers.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < rows.labels.numel(); ++i) {
      ++labels_[static_cast<std::size_t>(label[i])];
      ++answers_[static_cast<std::size_t>(answer[i])];
      if (label[i] == answer[i]) ++hits_[static_cast<std::size_t>(label[i])];
    }
    if (num_classes_ != 2) return;
    const auto* logit = rows.logits.const_data_ptr<double>();
    for (std::int64_t i = 0; i < rows.labels.numel(); ++i) {
      (label[i] == 1 ? positive_scores_ : negative_scores_).push_back(logit[2 * i + 1] - logit[2 * i]);
    }
  });
}

// [loss sum, hits, labels, answers, positive scores, negative scores]; the counts of labels say how many scores there
// are.
at::Tensor ClassificationTally::state() const {
  std::vector<double> all = {loss_sum_};
  for (const auto* counts : {&hits_, &labels_, &answers_}) all.insert(all.end(), counts->begin(), counts->end());
  for (const auto* scores : {&positive_scores_, &negative_scores_})
    all.insert(all.end(), scores->begin(), scores->end());
  return at::tensor(all, at::kDouble);
}

void ClassificationTally::add_state(const at::Tensor& state) {
  check_state(state, 1 + 3 * num_classes_);
  const at::Tensor values = state.to(at::kCPU).contiguous();
  const double* next = values.const_data_ptr<double>();
  const double* labels = next + 1 + num_classes_;
  const auto positives = static_cast<std::int64_t>(labels[1]);
  const auto negatives = static_cast<std::int64_t>(labels[0]);
  if (num_classes_ == 2) check_state(state, 1 + 3 * num_classes_ + positives + negatives);
  loss_sum_ += *next++;
  for (auto* counts : {&hits_, &labels_, &answers_}) {
    for (std::int64_t& count : *counts) count += static_cast<std::int64_t>(*next++);
  }
  if (num_classes_ != 2) return;
  positive_scores_.insert(positive_scores_.end(), next, next + positives);
  negative_scores_.insert(negative_scores_.end(), next + positives, next + positives + negatives);
}

std::int64_t ClassificationTally::rows() const {
  return std::accumulate(labels_.begin(), labels_.end(), std::int64_t{0});
}

EvalMetrics ClassificationTally::result() const {
  const auto count = static_cast<double>(rows());
  EvalMetrics result;
  result["loss"] = count > 0 ? loss_sum_ / count : kNothing;
  const auto hits = static_cast<double>(std::accumulate(hits_.begin(), hits_.end(), std::int64_t{0}));
  result["accuracy"] = count > 0 ? hits / count : kNothing;
  // F1 = 2 hits / (labels + answers), the harmonic mean of precision and recall.
  const auto f1 = [&](std::size_t c) {
    return ratio(2 * static_cast<double>(hits_[c]), static_cast<double>(labels_[c] + answers_[c]));
  };
  double sum = 0;
  double seen = 0;
  for (std::size_t c = 0; c < hits_.size(); ++c) {
    if (labels_[c] + answers_[c] == 0) continue;
    sum += f1(c);
    seen += 1;
  }
  result["f1_macro"] = seen > 0 ? sum / seen : kNothing;
  if (num_classes_ == 2) {
    result["f1"] = count > 0 ? f1(1) : kNothing;
    result["roc_auc"] = roc_auc(positive_scores_, negative_scores_);
  }
  return result;
}

void LanguageTally::add(double loss_sum, double weight) {
  loss_sum_ += loss_sum;
  weight_ += weight;
}

void LanguageTally::add(const at::Tensor& logits, const at::Tensor& targets) {
  for_each_chunk(logits, targets,
                 [&](const Rows& rows) { add(cross_entropy_sum(rows), static_cast<double>(rows.labels.numel())); });
}

at::Tensor LanguageTally::state() const {
  return at::tensor({loss_sum_, weight_}, at::kDouble);
}

void LanguageTally::add_state(const at::Tensor& state) {
  check_state(state, 2);
  const at::Tensor values = state.to(at::kCPU).contiguous();
  add(values.const_data_ptr<double>()[0], values.const_data_ptr<double>()[1]);
}

EvalMetrics LanguageTally::result() const {
  const double loss = weight_ > 0 ? loss_sum_ / weight_ : kNothing;
  return {{"loss", loss}, {"perplexity", std::exp(loss)}};
}

}  // namespace orthant
