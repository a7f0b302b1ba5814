// The library's face: include this one. What it brings, layer by layer, is the table of contents of orthant.
#pragma once

#include "orthant/base/error.h"                   // ConfigError, CommError, DataError, InternalError
#include "orthant/base/log.h"                     // messages with the rank in front
#include "orthant/base/random.h"                  // random numbers by global index
#include "orthant/comm/communicator.h"            // the groups of a mesh
#include "orthant/comm/group.h"                   // collectives and messages
#include "orthant/data/loader.h"                  // batches, read ahead
#include "orthant/generate/llm.h"                 // a stored model that goes on with texts
#include "orthant/launch/environment.h"           // the process environment, read once
#include "orthant/launch/meeting.h"               // joining the launcher's job
#include "orthant/mesh/mesh.h"                    // axes, coordinates, groups of ranks
#include "orthant/ops/functions.h"                // operations of recorded units
#include "orthant/parallel/data/data_parallel.h"  // DDP for a user's own module and loop
#include "orthant/runtime/module_graph.h"         // a user's modules and recorded units as a graph
#include "orthant/train/run_profile.h"            // where the time of steps goes
#include "orthant/train/trainer.h"                // places, shards, schedules and trains a graph

namespace orthant {

// This process' place in the job of the launcher that started it (orthant launch, torchrun, Slurm, MPI, ...); a job of
// one rank without a launcher. Blocks until rank 0 can be found. Ranks of a foreign launcher on several hosts know each
// other by the job token in ORTHANT_TOKEN, which is removed from the environment.
inline launch::Job join(double timeout_seconds = 300) {
  const launch::TokenSource tokens{.variable = launch::take_variable(launch::kTokenVariable)};
  return launch::join_launcher(launch::process_environment(), {}, timeout_seconds, tokens).value_or(launch::Job{});
}

}  // namespace orthant
