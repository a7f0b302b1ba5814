// A trained model on rows of another file: its metrics there, or what it says of each row. The commands `evaluate` and
// `predict` are this, on every rank of any mesh: one rank's weights or parts of them, without gradients and optimizer
// state, read from whatever mesh wrote the checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orthant/train/metrics.h"
#include "orthant/train/run_config.h"
#include "orthant/train/scoring_config.h"

namespace orthant {

struct ScoringReports {
  std::function<void(const std::string&)> note = {};     // lines for people
  std::function<void(std::int64_t rows)> progress = {};  // samples that have begun
};

struct ScoringResult {
  std::string weights;     // the checkpoint or folder they came from
  std::int64_t step = -1;  // of the checkpoint; -1: of no run
  std::int64_t rows = 0;   // scored: of a table, documents, or samples of an evaluation
  std::int64_t parameters = 0;
  std::int64_t bytes_read = 0;            // of weights, by this rank
  EvalMetrics metrics = {};               // of an evaluation
  std::vector<std::string> columns = {};  // of a prediction's file
};

// `config` is read_scoring_config()'s, with device and communicator. DataError, one with a rank on all of them.
// Collective over the world.
ScoringResult evaluate_file(RunConfig config, const ScoredModel& model, const ScoringReports& reports);

// The same on the part that the run held out, of a configuration without a file. DataError where the run's data is not
// what it was. Collective over the world.
ScoringResult evaluate_held_out(RunConfig config, const ScoredModel& model, const ScoringReports& reports);

// Rank 0 writes `out`, see prediction_file.h. A classifier: row (from 1), prediction, label (where the table has the
// column), probability_LABEL of every class. A language model: row, tokens (predicted ones), loss (their mean),
// perplexity; both are missing for a document without any.
ScoringResult predict_file(RunConfig config, const ScoredModel& model, const std::string& out,
                           const ScoringReports& reports);

}  // namespace orthant
