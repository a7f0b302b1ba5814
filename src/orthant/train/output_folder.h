// The folder a run writes: config.json, metrics.jsonl, eval.jsonl, tensorboard/, checkpoints/step-N. A folder that
// holds a run is refused unless that run is resumed; two jobs never write one folder. Rank 0 has it: nothing here
// communicates.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "orthant/files/folder_lock.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/run_config.h"
#include "orthant/train/run_log.h"

namespace orthant {

class OutputFolder {
 public:
  // Chooses and checks the path; writes nothing, but for the names of checkpoints in a folder of its own. ConfigError
  // for a folder that holds a run when `resume` is empty. A job that was `restarted` goes on in its own folder: from
  // the newest checkpoint there, and from `resume` before the first one. DataError when `resume` is no checkpoint.
  OutputFolder(const std::string& wanted, const std::string& run_name, const std::string& resume,
               bool restarted = false);

  // Whether this run goes on from a checkpoint: one was named, or there are some to choose from.
  bool resumes() const;

  // Makes the folder and locks it. ConfigError when another job has it.
  void open();

  // The checkpoints to resume from, the best first; those after the first are tried when it is damaged.
  std::vector<std::string> checkpoints_to_resume() const;

  // DataError when a checkpoint is of another model, or its rows were prepared in another way.
  void check_same_run(const std::string& checkpoint, const std::string& resolved_config, const SavedFiles& files) const;

  // Metrics, evaluations and checkpoints after that step go: the run takes another way. Gives what is to be told.
  std::vector<std::string> cut_after(std::int64_t step) const;

  // config.json and what belongs to the model.
  void write(const std::string& resolved_config, const SavedFiles& files) const;

  // Files and progress of this run from `first_step` on.
  RunLog open_log(const RunConfig& config, std::int64_t first_step, bool color, std::ostream& out);

  // Empty, "auto" or the path of a checkpoint: how this run begins.
  const std::string& resume() const { return resume_; }
  bool restarted() const { return restarted_; }
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string checkpoint_path(std::int64_t step) const;

 private:
  void check_free() const;

  std::string path_;
  std::string resume_;
  bool restarted_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace orthant
