// A whole training run: output folder, data, trainer, evaluation, checkpoints, reports. The command `train` is this.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "orthant/train/datasets.h"
#include "orthant/train/result_table.h"
#include "orthant/train/run_config.h"
#include "orthant/train/summary.h"

namespace orthant {

class PretrainedWeights;

struct RunOptions {
  std::string output_dir;                       // empty: runs/NAME-N with the first free N
  std::string resume;                           // empty, "auto" or the path of a checkpoint
  std::optional<std::int64_t> stop_after = {};  // stop after this step; 0 saves the initial weights
  bool color = false;
  std::function<bool()> stop_requested = {};  // asked after every step: save and leave
};

struct RunOutcome {
  RunResult result;
  bool stopped = false;  // on request, after saving
};

// Trains to the end or until it is told to stop. Progress and messages go to `out`. Nothing is written before the
// configuration, the data and the model have been found good. ConfigError, DataError.
RunOutcome run_training(RunConfig config, const std::string& resolved_config, const RunOptions& options,
                        std::ostream& out);

// ConfigError when the configuration asks for what cannot be trained here. Call it before ranks are started.
void check_trainable(const RunConfig& config);

// The trainer of a configuration, its weights drawn, or read where the model names a `path`.
std::unique_ptr<Trainer> make_trainer(const RunConfig& config);
std::unique_ptr<Trainer> make_trainer(const RunConfig& config, const PretrainedWeights& weights);

// What a step of the run keeps, for the summary.
SummaryOptions summary_options(const RunConfig& config);

// Loss and whatever fits the task over a whole data set, a microbatch at a time; nothing when it was told to stop.
EvalMetrics evaluate_dataset(Trainer& trainer, const Dataset& dataset, std::int64_t num_labels, std::int64_t rows,
                             const std::function<bool()>& stop_requested = {});

}  // namespace orthant
