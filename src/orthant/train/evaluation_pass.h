// An evaluation: a whole data set through the model, a microbatch at a time, its rows shared out to the replicas.
//
// Note [Rows of an evaluation]: replica r of R has the rows [ceil(r N/R), ceil((r+1) N/R)), as in a global batch
// (layout/rows.h). All make as many calls as the one with the most rows needs, since gathers of sharded parameters wait
// for every rank; a replica without rows left runs a real row once more and does not count it. Tallies are added in
// rank order, so that every rank has the same result, and counts and scores are those of one rank.
#pragma once

#include <functional>

#include "orthant/data/dataset.h"
#include "orthant/train/metrics.h"

namespace orthant {

class Trainer;

struct EvaluationOptions {
  std::int64_t num_labels = 0;                // 0: language modelling
  std::int64_t rows = 1;                      // of a call
  std::function<bool()> stop_requested = {};  // asked before calls, on every rank
};

// Loss and whatever fits the task; nothing when some rank was told to stop. Collective over the world.
EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, const EvaluationOptions& options);

}  // namespace orthant
