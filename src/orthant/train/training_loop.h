// The steps of a run: batches, reports, evaluations, checkpoints, and what is done when a step goes wrong, a rank is
// told to stop or a disk is full. Every rank runs it and decides alike: what one rank alone knows travels with a step.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "orthant/base/quantile.h"
#include "orthant/checkpoint/saver.h"
#include "orthant/comm/control_group.h"
#include "orthant/data/loader.h"
#include "orthant/trace/speed_watch.h"
#include "orthant/train/datasets.h"
#include "orthant/train/expert_watch.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/rank_log.h"
#include "orthant/train/run.h"
#include "orthant/train/run_profile.h"
#include "orthant/train/sample_log.h"
#include "orthant/train/step_profile.h"
#include "orthant/train/trainer.h"

namespace orthant {

// Where a loop reports.
struct LoopReports {
  const OutputFolder* folder = nullptr;  // rank 0's; null on the others
  RunLog log;
  SampleLog samples;
  std::function<void(const std::string&)> note;      // for people: one line on every rank
  std::function<void(const std::string&)> rank_log;  // for this rank's log alone
  std::shared_ptr<const TagKey> key = {};            // that checkpoints are tagged with; null: none
  WriteFence fence = {};                             // of this attempt
};

class TrainingLoop {
 public:
  TrainingLoop(const RunConfig& config, const RunOptions& options, const RunData& data, Trainer& trainer,
               LoopReports reports);

  // DataError after a step that was not finite, or when the last checkpoint or some reports could not be written.
  // Collective over the world.
  RunOutcome run();

 private:
  bool asked_to_stop() const { return options_.stop_requested && options_.stop_requested(); }
  std::int64_t peak_bytes() const;
  // Reports that find no room on a disk are said once and written later.
  void tell(const char* destination, const std::function<void()>& report);
  void make_step(Loader& loader);
  void watch_speed();
  void profile_steps();
  void end_profile();
  void note_step_memory();
  void add_measurements();
  void settle_pending();
  void handle_bad_step(const PendingStep::Numbers& numbers);
  void evaluate();
  bool improves_no_more();
  void save();
  // Whether rank 0's clock asks for a save. It tells so with a step, and all ranks save once that step's numbers are
  // there.
  bool save_is_due() const;
  void end_save(const SaveOutcome& outcome);
  void save_last();
  // The error of the last save, with its step and what a resume has instead.
  [[noreturn]] void throw_save_error() const;
  // What could not be written to the end; null when all reports are in their files.
  std::exception_ptr finish_reports();

  const RunConfig& config_;
  const RunOptions& options_;
  const RunData& data_;
  Trainer& trainer_;
  ControlGroup ranks_;
  LoopReports reports_;
  CheckpointSaver saver_;
  std::int64_t last_step_;
  RunOutcome outcome_;  // `stopped` is alike on all ranks
  std::optional<PendingStep> pending_;
  StepMetrics pending_metrics_;
  ExpertWatch expert_watch_;
  bool any_reported_ = false;
  std::int64_t steps_made_ = 0;  // by this process
  EvenSamples step_seconds_;     // of those behind the first, cold ones
  std::int64_t step_bytes_ = 0;  // the most memory in steps alone; 0: not noted
  trace::SpeedWatch speed_watch_;
  double busy_seconds_ = 0;  // of the last step: what this rank did not wait for others
  std::int64_t waited_ns_ = 0;
  double flops_per_sample_ = 0;  // of the model; 0: not known
  std::optional<StepProfiler> profiler_;
  std::optional<RunProfiler> run_profiler_;
  std::int64_t profile_ends_ = -1;         // the last step of the profile
  std::set<std::string> waiting_reports_;  // destinations without room
  std::int64_t bad_steps_in_a_row_ = 0;
  std::int64_t evaluated_at_ = -1;
  double least_eval_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t evals_since_least_ = 0;
  std::int64_t saved_at_ = -1;                            // the step of the newest checkpoint of this run
  std::chrono::steady_clock::time_point last_save_ = {};  // the last save, or the loop
  bool save_was_due_ = false;                             // when a step that was settled began: alike on all ranks
  std::int64_t save_stage_since_ = -1;                    // the last step that began before the save's stage did
  bool ending_ = false;
};

}  // namespace orthant
