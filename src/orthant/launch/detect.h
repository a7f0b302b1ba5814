// Which launcher started this process, if any, and what it says: explicit flags, torchrun (and `orthant launch`, which
// sets the same variables), PALS, Open MPI, MPICH, LSF, Slurm. Two launchers that contradict each other are an error,
// never a guess.
#pragma once

#include <optional>
#include <string>

#include "orthant/launch/job.h"

namespace orthant::launch {

// What the command line says; it wins over the environment.
struct DetectOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::string rendezvous;  // HOST:PORT; empty: from the environment
  std::string bind;        // address to listen on; empty: chosen
  std::string launcher;    // one of launcher_names(), "none", or empty: any
};

// Who this process is, or nothing when no launcher started it and it may start its own ranks. Reads host files that
// variables name, and /proc; opens no socket: what still needs one is completed by meet(). ConfigError for incomplete,
// impossible or contradictory variables. Local.
std::optional<Job> detect(const Environment& environment, const DetectOptions& options = {});

}  // namespace orthant::launch
