#include "orthant/train/evaluation_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/comm/control_group.h"
#include "orthant/layout/rows.h"
#include "orthant/train/evaluation.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

// Calls whose results travel together, at least.
constexpr std::int64_t kHandedCalls = 16;

// What every rank tallied, in the order of the ranks.
template <typename Tally>
EvalMetrics added(Tally empty, const Tally& own, const ControlGroup& ranks) {
  for (const auto& state : ranks.gather(own.state())) empty.add_state(state);
  return empty.result();
}

Range microbatch_rows(std::int64_t microbatch, std::int64_t rows, std::int64_t size) {
  return {std::min(microbatch * rows, size), std::min((microbatch + 1) * rows, size)};
}

// The values of a few calls, on their way to rank 0: per microbatch its number, how many values, and these.
class RowResults {
 public:
  explicit RowResults(const EvaluationOptions& options) : options_(options) {}

  void add(std::int64_t microbatch, const at::Tensor& values) {
    const at::Tensor flat = values.to(at::kCPU, at::kDouble).reshape({-1}).contiguous();
    waiting_.push_back(static_cast<double>(microbatch));
    waiting_.push_back(static_cast<double>(flat.numel()));
    waiting_.insert(waiting_.end(), flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  }

  // Collective over the world.
  void hand_over(const ControlGroup& ranks, std::int64_t size) {
    const auto all = ranks.gather(at::tensor(std::exchange(waiting_, {}), at::kDouble));
    ranks.together([&] {
      if (ranks.is_first()) take(all, size);
    });
  }

 private:
  void take(const std::vector<at::Tensor>& all, std::int64_t size) const {
    std::map<std::int64_t, std::span<const double>> found;
    for (const auto& values : all) {
      const double* next = values.const_data_ptr<double>();
      const double* const end = next + values.numel();
      while (next < end) {
        const auto count = static_cast<std::size_t>(next[1]);
        found[static_cast<std::int64_t>(next[0])] = {next + 2, count};
        next += 2 + count;
      }
    }
    for (const auto& [microbatch, values] : found) {
      const auto rows = microbatch_rows(microbatch, options_.rows, size);
      options_.take({rows.begin, rows.size(), values});
    }
  }

  const EvaluationOptions& options_;
  std::vector<double> waiting_;
};

}  // namespace

EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, const EvaluationOptions& options) {
  const ControlGroup ranks = control_group(trainer.options());
  const ClassificationTally no_classes(std::max<std::int64_t>(options.num_labels, 2));
  auto classes = no_classes;
  LanguageTally language;
  RowResults results(options);
  const auto evaluate = [&](const std::vector<std::int64_t>& indices, std::int64_t microbatch, bool counts) {
    const auto fields = dataset.rows(indices);
    const auto found = trainer.evaluate(fields, {options.num_labels > 0 ? "logits" : "loss"});
    if (!counts || found.empty()) return;  // another stage has them
    if (options.num_labels > 0) {
      classes.add(found.at("logits"), fields.at(kLabelsField));
      if (options.take) results.add(microbatch, found.at("logits"));
    } else {
      const auto loss = found.at("loss").to(at::kDouble).item<double>();
      const auto weight = dataset.weight_sum(fields);
      language.add(loss, weight);
      if (options.take) results.add(microbatch, at::tensor({loss, weight}, at::kDouble));
    }
  };
  const auto& mesh = trainer.mesh();
  const std::int64_t replicas = num_replicas(mesh);
  const std::int64_t replica = replica_index(mesh, mesh.coordinate(ranks.rank()));
  const auto microbatches = (dataset.size() + options.rows - 1) / options.rows;
  const auto calls = (microbatches + replicas - 1) / replicas;
  // The tp and cp ranks of a stage have the same numbers: one of them counts. Other stages have none.
  const Coordinate here = mesh.coordinate(ranks.rank());
  const bool counts = here[Axis::tp] == 0 && here[Axis::cp] == 0;
  // All ranks meet to ask, which also bounds how far one stage runs ahead of another. Stages work on different calls
  // at one time, so that they meet seldom.
  const std::int64_t meet_every = mesh.degree(Axis::pp) == 1 ? 1 : 4 * mesh.degree(Axis::pp);
  const std::int64_t hand_over_every = std::max(meet_every, kHandedCalls);
  for (std::int64_t call = 0; call < calls; ++call) {
    if (call % meet_every == 0 && ranks.any(options.stop_requested && options.stop_requested())) return {};
    const auto microbatch = call * replicas + replica;
    const auto mine = microbatch_rows(microbatch, options.rows, dataset.size());
    std::vector<std::int64_t> indices(static_cast<std::size_t>(mine.size()));
    std::iota(indices.begin(), indices.end(), mine.begin);
    if (mine.empty()) indices.push_back(dataset.size() - 1);
    evaluate(indices, microbatch, counts && !mine.empty());
    if (options.progress) options.progress(microbatch_rows((call + 1) * replicas, options.rows, dataset.size()).begin);
    if (options.take && ((call + 1) % hand_over_every == 0 || call + 1 == calls))
      results.hand_over(ranks, dataset.size());
  }
  return options.num_labels > 0 ? added(no_classes, classes, ranks) : added(LanguageTally(), language, ranks);
}

}  // namespace orthant
