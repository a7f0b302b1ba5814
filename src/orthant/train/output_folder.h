// The folder a run writes: config.json, metrics.jsonl, eval.jsonl, tensorboard/, checkpoints/step-N. A folder that
// holds a run is refused unless that run is resumed; two jobs never write one folder.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "orthant/data/sampler.h"
#include "orthant/files/folder_lock.h"
#include "orthant/train/checkpoint.h"
#include "orthant/train/run_config.h"
#include "orthant/train/run_log.h"

namespace orthant {

class OutputFolder {
 public:
  // Chooses and checks the path; writes nothing. ConfigError for a folder that holds a run when `resume` is empty.
  OutputFolder(const std::string& wanted, const std::string& run_name, const std::string& resume);

  // Makes the folder, locks it, writes config.json and `files` and, when resuming, loads the checkpoint into the
  // trainer and cuts the metrics after its step. DataError when a checkpoint's rows were prepared in another way.
  void prepare(Trainer& trainer, const Sampler& sampler, const std::string& resolved_config, const SavedFiles& files,
               std::ostream& out);

  // Files and progress of this run from `first_step` on.
  RunLog open_log(const RunConfig& config, std::int64_t first_step, bool color, std::ostream& out);

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string checkpoint_path(std::int64_t step) const;

 private:
  void check_free() const;
  void resume_from(const std::string& checkpoint, Trainer& trainer, const Sampler& sampler,
                   const std::string& resolved_config, std::ostream& out);

  std::string path_;
  std::string resume_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace orthant
