// How ranks that a foreign launcher started find one another. Ranks of one host meet at an abstract Unix-domain socket,
// where rank 0 serves their store: nothing is left in the file system, no port is opened, and both sides speak to
// processes of their own user alone. See Note [Names that others may take] in the source.
#pragma once

#include <optional>
#include <string>

#include "orthant/launch/detect.h"
#include "orthant/launch/job.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/token.h"

namespace orthant::launch {

class StoreServer;

// Completes what detect() left open: rank 0's listening socket, the other ranks' connections to it when all are on this
// host, and the address transports listen on. All ranks call it. On one host it blocks until rank 0 listens, or
// CommError after `timeout_seconds`. ConfigError when another rank 0 of this job is there already, or the port is
// taken; or when ranks on several hosts that serve their store themselves have no token.
void meet(Job& job, double timeout_seconds, const TokenSource& tokens = {});

// Accepts the other ranks of a job on one host at rank 0's socket, which passes to the server: processes of this user,
// each rank once, and nobody any more once all have come. Before the server is started. CommError when it was called
// for this job before.
void serve_meeting(StoreServer& server, const Job& job);

// The connection of another rank, once rank 0 has let it in. Blocks until rank 0 serves; CommError after
// `timeout_seconds`, ConfigError with rank 0's reason when it does not want this rank.
Fd enter_meeting(const Job& job, double timeout_seconds);

// The same over a connection that is already there: who refuses, or goes away, is not asked again. CommError.
Fd enter_meeting_over(Fd connection, const Job& job, double timeout_seconds);

// detect() and meet(): all that a program needs to take part in the job of the launcher that started it.
// Blocks as meet() does.
std::optional<Job> join_launcher(const Environment& environment, const DetectOptions& options, double timeout_seconds,
                                 const TokenSource& tokens = {});

// Names the process that started this host's ranks, the same for all of them: the nearest ancestor whose environment
// lacks `rank_variable`, by process number and start time. Wrapper scripts in between do not matter. Local.
std::string launcher_process_id(const std::string& rank_variable);

// How long ago that process was started. Local.
double launcher_age_seconds(const std::string& rank_variable);

}  // namespace orthant::launch
