// How a run goes on from a checkpoint: rank 0 looks which one, all ranks prove it whole together, rank 0 compares it
// with the run, and every rank loads what it owns.
#pragma once

#include <functional>
#include <string>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/comm/control_group.h"
#include "orthant/data/sampler.h"
#include "orthant/train/output_folder.h"

namespace orthant {

class Trainer;
struct TrainerOptions;

struct ResumeOptions {
  std::string output_dir;
  std::string resolved_config;
  SavedFiles files;                               // what belongs to the model besides weights
  std::function<void(const std::string&)> notes;  // receives lines for people, on every rank
  CheckpointAccess access = {};
};

// `folder` is rank 0's, open; null on the others. DataError when no checkpoint can be resumed or it is of another run;
// ConfigError when other samples would follow it, or measured plans are missing that the run must have. Of several
// checkpoints only those are passed over whose contents are proved wrong: one that the system does not let us read ends
// the run (IoError), and so does one without the tags that the key asks for (AuthenticityError) and one of another
// version of the format (VersionError). Nothing in the folder changes before all of that has been found good.
// Gives the checkpoint's folder; "" when the run starts anew. Collective over the world.
std::string resume_run(Trainer& trainer, const Sampler& sampler, const OutputFolder* folder,
                       const ResumeOptions& options);

// Whether that would be refused, without a trainer to load into: the checkpoint is whole, of this run, and the data
// goes on where it ends. Changes nothing. Collective over the world.
void check_resume(const OutputFolder& folder, const Sampler& sampler, const TrainerOptions& trainer,
                  const ControlGroup& ranks, const ResumeOptions& options);

}  // namespace orthant
