// What each known launcher says about this process through environment variables. One function per launcher; choosing
// among several is detect()'s work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/launch/job.h"

namespace orthant::launch {

// One launcher's word about this process.
struct Sighting {
  Job job;                    // launcher name, ranks and nodes; the rendezvous is not filled
  std::string variables;      // "RANK=1 WORLD_SIZE=4", for messages
  std::string rank_variable;  // the variable that only processes started by it have
  std::string job_id;         // the same in all ranks of the job and in no other job; may be empty
  std::string first_host;     // where rank 0 runs; may be empty
  bool has_local_ranks = true;
  bool has_group_ranks = false;  // torchrun: node_rank and num_nodes were given, not derived
  bool is_elastic = false;       // torchrun: the agents numbered the nodes among themselves
};

// Names `--launcher` takes, in the order in which launchers are preferred when several agree.
const std::vector<std::string>& launcher_names();

// The named launcher's variables: nothing when there are none, ConfigError when they are incomplete or impossible.
// Local.
std::optional<Sighting> see_launcher(const std::string& name, const Environment& environment);

// True for a Slurm step of a single task (srun --pty, one agent) or no step at all (a batch script): an allocation
// within which ranks are still to be started, not a launcher of them. Local.
bool is_slurm_allocation_only(const Environment& environment);

}  // namespace orthant::launch
