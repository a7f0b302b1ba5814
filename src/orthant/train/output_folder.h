// The folder a run writes: config.json, metrics.jsonl, eval.jsonl, product_plans.json, tensorboard/,
// checkpoints/step-N. A folder that holds a run is refused unless that run is resumed; two jobs never write one folder.
// Rank 0 has it: nothing here communicates. See Note [Nothing is lost on the way down].
//
// Note [Nothing is lost on the way down]: a run decides what to go on from by one listing under its lock. A listing
// that fails is tried again and then ends the run; it is never "none". "None" is believed where nothing was trained, or
// where `.unsaved` says that the run began at step 0 and has not saved yet: a restart of that job begins again. What
// the run does not go on from keeps its bytes under the suffix .superseded until a newer checkpoint is on the device.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/folder_lock.h"
#include "orthant/files/io_patience.h"
#include "orthant/files/metrics_file.h"
#include "orthant/train/run_config.h"
#include "orthant/train/run_log.h"

namespace orthant {

// How a run means to begin in its folder.
struct FolderUse {
  std::string resume = {};    // empty, "auto" or the path of a checkpoint
  bool restarted = false;     // after a failure: the folder is this job's own, and it goes on there
  bool from_scratch = false;  // "auto" may begin at step 0 although metrics tell of steps
  FolderWriter writer = {};   // who asks; an earlier attempt of its job loses the folder to it
  IoPatience patience = IoPatience();
};

class OutputFolder {
 public:
  // Chooses and checks the path; writes nothing, but for the names of checkpoints in a folder of its own. ConfigError
  // for a folder that holds a run when `resume` is empty. A job that was `restarted` goes on in its own folder: from
  // the newest checkpoint there, and from `resume` before the first one. DataError when `resume` is no checkpoint, and
  // when there is none although metrics tell of steps; IoError when the system does not tell what is there.
  OutputFolder(const std::string& wanted, const std::string& run_name, FolderUse use);

  // Whether this run goes on from a checkpoint: one was named, or there are some to choose from.
  bool resumes() const { return use_.resume == "auto" ? !found_.empty() : !use_.resume.empty(); }

  // Whether the user asked to begin at step 0, should there be no checkpoint.
  bool from_scratch() const { return use_.from_scratch && !use_.restarted; }

  // Makes the folder; one of our own numbering only then has its number for good. open() does it, too.
  void claim();

  // ConfigError when another job has it. Changes nothing.
  void check_not_in_use() const;

  // Makes the folder, locks it and looks again. ConfigError when another job has it, CommError when a later attempt of
  // this one; else as the constructor. What an earlier attempt was writing, and may go on to write, is out of the way
  // then, and every method that writes is refused once a later attempt has the folder: CommError.
  void open();

  // The checkpoints to resume from, the best first; those after the first are tried when it is damaged.
  std::vector<std::string> checkpoints_to_resume() const;

  // DataError when a checkpoint is of another model, or its rows were prepared in another way.
  void check_same_run(const std::string& checkpoint, const std::string& resolved_config, const SavedFiles& files) const;

  // Checkpoints, metrics and evaluations after that step are set aside as .superseded: the run takes another way. Gives
  // what is to be told.
  std::vector<std::string> supersede_after(std::int64_t step) const;

  // The run begins at step 0, and its folder has no checkpoint to lose before the first save: a restart may begin there
  // again. Until after_save(), or none_unsaved() for a run that goes on from a checkpoint.
  void begin_unsaved() const;
  void none_unsaved() const;

  // ConfigError when something that the run writes by name has become a link. IoError.
  void check_entries() const;

  // Once a checkpoint of this run is on the device: pointers name it, and what the rules do not keep and what was
  // superseded goes. DataError when some of it stays; it goes after the next save then. `evaluates`: the run has eval
  // losses, by which one is the best.
  void after_save(const KeepRules& keep, bool evaluates) const;

  // config.json and what belongs to the model.
  void write(const std::string& resolved_config, const SavedFiles& files) const;

  // The plans of products that the run goes by, as text: of this folder, or of that of the checkpoint that was named.
  // Empty when there are none. IoError.
  std::string product_plans() const;
  void write_product_plans(const std::string& text) const;

  // Writes lines that wait in memory: a run that goes on from the next checkpoint would not make them again. Call it
  // before a save, in the thread that appends; blocks for as long as the run is patient. Lines may go on waiting.
  void flush_lines() const;

  // Brings metrics and evaluations to the device. DataError. In any thread, after open_log().
  void sync_lines() const;

  // A line of metrics that belongs to no step: from the step after this one on the run has another mesh, whose steps
  // are predicted to take so long where the planner picked it.
  void write_mesh_change(std::int64_t step, const std::string& before, const std::string& after,
                         std::optional<double> predicted_step_seconds) const;

  // Files and progress of this run from `first_step` on.
  RunLog open_log(const RunConfig& config, std::int64_t first_step, bool color, std::ostream& out);

  // Empty, "auto" or the path of a checkpoint: how this run begins.
  const std::string& resume() const { return use_.resume; }
  // The path that was named; empty for a run that chooses by itself or begins at step 0.
  std::string resumed_from() const { return use_.resume == "auto" ? "" : use_.resume; }
  const WriteFence& fence() const { return fence_; }
  const IoPatience& patience() const { return use_.patience; }
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string checkpoint_path(std::int64_t step) const;

 private:
  void look();
  void shut_out_earlier_attempts() const;
  void check_free() const;
  void check_not_lost() const;
  void repoint() const;
  std::vector<std::string> line_files() const;
  std::vector<std::string> last_lines() const;

  std::string path_;
  std::string unclaimed_;  // the run's name while the number in the path is only thought to be free
  FolderUse use_;
  std::vector<FoundCheckpoint> found_;  // newest first, as of the last look
  std::unique_ptr<FolderLock> lock_;
  WriteFence fence_;                              // once opened
  std::vector<std::shared_ptr<LineFile>> lines_;  // that open_log() opened
};

}  // namespace orthant
