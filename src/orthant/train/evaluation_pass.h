// An evaluation: a whole data set through the model, a microbatch at a time, its rows shared out to the replicas.
//
// Note [Rows of an evaluation]: the rows are cut into microbatches of `rows`, and microbatch b goes to replica b mod R
// of R. So every mesh runs the microbatches of one rank, and rows that come in their order are written as they come.
// All replicas make as many calls as the one with the most microbatches needs, since gathers of sharded parameters wait
// for every rank; a replica without one left runs a real row once more and does not count it. Tallies are added in rank
// order, so that every rank has the same result, and counts and scores are those of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "orthant/data/dataset.h"
#include "orthant/train/metrics.h"

namespace orthant {

class Trainer;

// What one microbatch gave.
struct EvaluatedRows {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::span<const double> values = {};  // logits [rows, labels]; of a language model: sum of losses, sum of weights
};

struct EvaluationOptions {
  std::int64_t num_labels = 0;                // 0: language modelling
  std::int64_t rows = 1;                      // of a call
  std::function<bool()> stop_requested = {};  // asked before calls, on every rank
  // Receives every microbatch in the order of the rows, on rank 0, a few calls after it was computed. Every rank must
  // give one, or none; when it throws, all ranks do. It must not communicate.
  std::function<void(const EvaluatedRows&)> take = {};
  std::function<void(std::int64_t rows)> progress = {};  // rows that have begun, now and then
};

// Loss and whatever fits the task; nothing when some rank was told to stop. Collective over the world.
EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, const EvaluationOptions& options);

}  // namespace orthant
