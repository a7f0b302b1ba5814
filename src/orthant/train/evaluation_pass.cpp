#include "orthant/train/evaluation_pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "orthant/layout/rows.h"
#include "orthant/train/control_group.h"
#include "orthant/train/evaluation.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace {

// What every rank tallied, in the order of the ranks.
template <typename Tally>
EvalMetrics added(Tally empty, const Tally& own, const ControlGroup& ranks) {
  for (const auto& state : ranks.gather(own.state())) empty.add_state(state);
  return empty.result();
}

}  // namespace

EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, const EvaluationOptions& options) {
  const ControlGroup ranks(trainer.options());
  const ClassificationTally no_classes(std::max<std::int64_t>(options.num_labels, 2));
  auto classes = no_classes;
  LanguageTally language;
  const auto evaluate = [&](const std::vector<std::int64_t>& indices, bool counts) {
    const auto fields = dataset.rows(indices);
    const auto found = trainer.evaluate(fields, {options.num_labels > 0 ? "logits" : "loss"});
    if (!counts || found.empty()) return;  // another stage has them
    if (options.num_labels > 0) {
      classes.add(found.at("logits"), fields.at(kLabelsField));
    } else {
      language.add(found.at("loss").to(at::kDouble).item<double>(), dataset.weight_sum(fields));
    }
  };
  if (dataset.size() > 0) {
    const auto& mesh = trainer.mesh();
    const RowShare share{.replicas = num_replicas(mesh), .replica = replica_index(mesh, mesh.coordinate(ranks.rank()))};
    const auto mine = replica_rows(dataset.size(), share);
    const auto most = (dataset.size() + share.replicas - 1) / share.replicas;
    // The tp ranks of a stage have the same numbers: one of them counts. Other stages have none.
    const bool counts = mesh.coordinate(ranks.rank())[Axis::tp] == 0;
    // All ranks meet to ask, which also bounds how far one stage runs ahead of another. Stages work on different calls
    // at one time, so that they meet seldom.
    const std::int64_t asked_every = mesh.degree(Axis::pp) == 1 ? 1 : 4 * mesh.degree(Axis::pp);
    for (std::int64_t done = 0, call = 0; done < most; done += options.rows, ++call) {
      if (call % asked_every == 0 && ranks.any(options.stop_requested && options.stop_requested())) return {};
      const auto left = std::clamp<std::int64_t>(mine.real.size() - done, 0, options.rows);
      std::vector<std::int64_t> indices(static_cast<std::size_t>(left));
      std::iota(indices.begin(), indices.end(), mine.real.begin + done);
      if (left == 0) indices.push_back(mine.padding_row);
      evaluate(indices, counts && left > 0);
    }
  }
  return options.num_labels > 0 ? added(no_classes, classes, ranks) : added(LanguageTally(), language, ranks);
}

}  // namespace orthant
