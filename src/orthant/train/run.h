// A whole training run: output folder, data, trainer, evaluation, checkpoints, reports. The command `train` is this, on
// every rank: rank 0 writes the folder and reports, the others write their part of checkpoints and a log.
#pragma once

#include <exception>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "orthant/train/datasets.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/result_table.h"
#include "orthant/train/run_config.h"
#include "orthant/train/run_profile.h"
#include "orthant/train/summary.h"

namespace orthant {

class PretrainedWeights;

struct RunOptions {
  std::string output_dir;                       // empty: runs/NAME-N with the first free N
  std::string resume;                           // empty, "auto" or the path of a checkpoint
  bool restarted = false;                       // after a failure: the folder is this job's own, and it goes on there
  FolderWriter writer = {};                     // this attempt, where the launcher tells it from others
  bool from_scratch = false;                    // "auto" may begin at step 0 although metrics tell of steps
  std::optional<std::int64_t> stop_after = {};  // stop after this step; 0 saves the initial weights
  bool color = false;
  std::optional<double> predicted_step_seconds = {};  // where the planner picked the mesh
  ProfiledSteps profile = {};                         // into profile.json and trace.json of the folder
  std::string trace = {};                             // the file instead of the latter
  std::function<bool()> stop_requested = {};  // asked in every step: save and leave. One rank's request is enough
};

struct RunOutcome {
  RunResult result;
  bool stopped = false;                    // on request, after saving
  std::string ended_early;                 // why, when train.early_stop ended it
  std::optional<RunProfile> profile = {};  // rank 0's, where steps were profiled
  std::exception_ptr save_error;           // of the newest save; null when it was good
};

// Trains to the end or until a rank is told to stop; all ranks stop after the same step. Progress and messages go to
// `out`: what several ranks would say alike comes from each of them, so that all but rank 0 are given one that drops
// it. Nothing is written before the configuration, the data and the model have been found good. ConfigError,
// DataError; one with a rank is thrown by all ranks. Collective over the world.
RunOutcome run_training(RunConfig config, const std::string& resolved_config, const RunOptions& options,
                        std::ostream& out);

// ConfigError when evaluations decide when to stop and there is nothing to evaluate on.
void check_evaluated(const RunConfig& config, const RunData& data, ErrorDetails details = {});

// How such a run begins in its folder.
FolderUse folder_use(const RunConfig& config, const RunOptions& options);

// What the run's checkpoints are tagged with; null when checkpoint.key_file is not set. ConfigError, IoError.
std::shared_ptr<const TagKey> checkpoint_key(const RunConfig& config);

// ConfigError when the configuration asks for what cannot be trained here. Call it before ranks are started.
void check_trainable(const RunConfig& config);

// The trainer of a configuration, its weights drawn, or read where the model names a `path`.
std::unique_ptr<Trainer> make_trainer(const RunConfig& config);
std::unique_ptr<Trainer> make_trainer(const RunConfig& config, const PretrainedWeights& weights);

// What a step of the run keeps, for the summary.
SummaryOptions summary_options(const RunConfig& config);

}  // namespace orthant
