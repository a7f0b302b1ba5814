// How ranks that a foreign launcher started find one another. Ranks of one host without an agreed port meet at an
// abstract unix socket: rank 0 binds a loopback port and tells it to the others there. Nothing is left in the file
// system, and only processes of the same user are answered.
#pragma once

#include <optional>
#include <string>

#include "orthant/launch/detect.h"
#include "orthant/launch/job.h"

namespace orthant::launch {

// Completes what detect() left open: the port of a job on one host, rank 0's bound store socket, and the address
// transports listen on. All ranks call it; blocks until rank 0 has told every other rank, or CommError after
// `timeout_seconds`.
void meet(Job& job, double timeout_seconds);

// detect() and meet(): all that a program needs to take part in the job of the launcher that started it. Blocks as
// meet() does.
std::optional<Job> join_launcher(const Environment& environment, const DetectOptions& options, double timeout_seconds);

// Names the process that started this host's ranks, the same for all of them: the nearest ancestor whose environment
// lacks `rank_variable`, by process number and start time. Wrapper scripts in between do not matter. Local.
std::string launcher_process_id(const std::string& rank_variable);

// How long ago that process was started. Local.
double launcher_age_seconds(const std::string& rank_variable);

}  // namespace orthant::launch
