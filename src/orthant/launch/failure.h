// How ranks end and which end was the cause. A rank that loses a peer leaves with code 3, so code 3 is a consequence as
// long as any other end explains it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orthant::launch {

inline constexpr int kPeerLostExitCode = 3;
inline constexpr int kWrongUseExitCode = 2;
inline constexpr int kBadDataExitCode = 4;
inline constexpr int kStoppedExitCode = 75;  // stopped on request: what there was to save is saved

// What a launcher reports. `report` is empty when nothing failed.
struct Outcome {
  int exit_code = 0;
  int failed_rank = -1;  // global; -1 when no rank is to blame
  std::string report = {};
  bool stop_asked = false;      // the launcher was told to stop, whatever became of it
  std::string run_folder = {};  // that a rank of this host has told of; empty: none
  bool host_lost = false;       // no rank: its launcher is gone or silent
  bool regroups = false;        // the attempt was ended for another one with other hosts
};

// Whether the same job may do better when started again: a rank or a host was lost, failed, or did not answer; not
// after a wrong use, bad data or a stop on request.
bool may_restart(const Outcome& outcome);

// The end of one rank.
struct RankExit {
  int rank = 0;             // global
  int status = 0;           // as waitpid gives it
  int turn = 0;             // ends seen at the same time share a turn
  bool asked = false;       // it died of a signal that the launcher had sent
  std::string reason = {};  // of its death, where it is known to be lack of memory
  std::string held = {};    // what it had in memory then and what it did, where that is known
};

// A failure that ends the job, here or on another host.
struct Failure {
  int node = 0;
  int rank = -1;  // global; -1 when a launcher, not a rank, was lost
  int exit_code = 3;
  std::string text;  // "rank 3: killed by SIGKILL"
};

// The failure as other nodes report it: "node 1, rank 3: killed by SIGKILL".
Failure seen_elsewhere(Failure failure);

// Neither 0 nor 75: the job cannot go on.
bool is_bad(const RankExit& exit);

// Bad, but perhaps only because another rank died first.
bool is_consequence(const RankExit& exit);

// The exit that explains the others: the first bad one that is not a consequence, among simultaneous ones a death by
// signal; failing that, the first bad one. Empty when none is bad.
std::optional<RankExit> find_cause(const std::vector<RankExit>& exits);

// The rank that left the others alone: the first that ended well, and no later than others ended badly. Empty when
// there is none, or when somebody ended badly who had not just lost a peer.
std::optional<RankExit> find_leaver(const std::vector<RankExit>& exits);

// "rank 3: killed by SIGKILL", with ": " and a reason and "; it held " and what where there is one, or "rank 2: exit
// code 70".
std::string describe(const RankExit& exit);

// What a rank did last before the job failed.
struct LastAction {
  int rank = 0;  // global
  std::string text;
  double age_seconds = 0;       // when the job failed
  std::optional<RankExit> end;  // of a rank that ended badly by itself
};

inline constexpr size_t kMostLastActions = 16;

// Lines to follow a failure's first line, each with a newline before it: "last actions:" and one line for every rank
// that said anything, in the order of ranks. Of more than 16 ranks `failed_rank` and those that have been silent for
// longest, longest first, and how many are left out. Empty when nobody said anything.
std::string last_actions_text(std::vector<LastAction> actions, int failed_rank);

// The rank's own exit code; 3 for a death by signal, 4 where the kernel killed it for lack of memory, which a restart
// would meet again.
int job_exit_code(const RankExit& exit);

// "SIGKILL", or "signal 35" for one without a name.
std::string signal_name(int signal);

}  // namespace orthant::launch
