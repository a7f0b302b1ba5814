// Watches the ranks of one host until all have ended: carries their output, forwards signals, and ends the rest when
// one fails. First failure, then up to 200 ms for its cause, then SIGTERM to the rest, then SIGKILL after the grace
// time; a stopped rank, which cannot heed SIGTERM, gets SIGKILL at once. A rank's process group ends with the rank, so
// nothing it started remains. A rank that is dead though the system does not report its end, as one inside a device's
// driver, counts as ended after a while (Options::unreported_seconds); one that has not ended after SIGKILL is given
// up, so that the job ends whatever becomes of it. When ranks only waited in vain, the one they waited for is the
// cause, or the one that had left; a rank that is stopped or silent for too long (RankWatch) ends the job.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "orthant/launch/activity_board.h"
#include "orthant/launch/external_events.h"
#include "orthant/launch/failure.h"
#include "orthant/launch/out_of_memory.h"
#include "orthant/launch/output_pump.h"
#include "orthant/launch/rank_process.h"
#include "orthant/launch/rank_watch.h"
#include "orthant/launch/signal_watch.h"

namespace orthant::launch {

class Supervisor {
 public:
  struct Options {
    double grace_seconds = 1.5;
    int node_rank = 0;
    Timeouts timeouts = Timeouts::all(0);  // of a rank that is stopped or silent, which then fails the job; 0: never
    double killed_seconds = 5;             // from SIGKILL, or its death, until a rank that is still there is given up
    double unreported_seconds = 2;         // from the death of a rank until it counts as ended though no report came
  };

  // `signals` must have been made before the first rank was started. `board` has a slot for each rank, in the order
  // they are added. `events` may be null.
  Supervisor(const Options& options, SignalWatch& signals, OutputPump& pump, const ActivityBoard& board,
             ExternalEvents* events);

  // Kills and reaps whatever still runs. Waits for that as long as for any rank after SIGKILL.
  ~Supervisor();

  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Takes charge of a rank just started; `log` receives its output too unless empty.
  void add(RankProcess process, Fd log);

  // Blocks until every rank has ended, all output is written, and `events` says that every host is done.
  Outcome run();

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = -1;
    bool alive = true;
    std::optional<Clock::time_point> dead_since = {};  // without a report of its end
    std::optional<RankExit> own_bad_end = {};          // before the launcher ended the job
  };
  enum class Phase { kRunning, kCollecting, kTerminating, kKilled };

  bool finished();
  void wait_for_something();
  void handle_signals();
  void forward(int signal);
  void reap();
  std::optional<int> end_of(Rank& rank) const;
  void take_report(Rank& rank);
  double most_unreported_seconds(int status) const;
  void check_unreported();
  void note_exit(const RankExit& exit);
  void check_reader();
  void check_elsewhere();
  void regroup_if_asked();
  void check_deadline();
  void check_overdue();
  void fail_with(Failure failure, bool announce);
  void blame(const RankState& state);
  bool blame_leaver(int survivor);
  void remember_actions();
  std::optional<Clock::time_point> next_look() const;
  std::optional<Clock::time_point> next_reap() const;
  void terminate();
  void kill_everything();
  void give_up();
  void announce_end_once();
  void signal_groups(int signal);
  Failure stopped_here() const;
  bool any_alive() const;
  bool is_awaited(const Rank& rank) const;
  bool any_awaited() const;
  int clean_exit_code() const;
  bool ended_cleanly() const;
  std::string last_actions(int failed_rank) const;
  std::string held_by(int rank) const;
  bool lacked_memory(int rank) const;  // and was killed for that
  std::vector<std::string> still_there() const;
  Outcome verdict() const;

  Options options_;
  SignalWatch& signals_;
  OutputPump& pump_;
  RankWatch watch_;
  OutOfMemoryWatch memory_;
  ExternalEvents* events_;
  std::vector<Rank> ranks_;
  std::vector<RankExit> exits_;
  int turn_ = 0;
  Clock::time_point next_reap_ = Clock::now();
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;        // of the phase
  std::optional<Clock::time_point> last_output_by_;  // how long to wait for strays that hold a pipe open
  std::set<int> sent_;                               // signals the ranks got from us
  int stop_signal_ = 0;                              // the forwarded signal that ended the job
  int interrupts_ = 0;                               // SIGINT and SIGTERM received
  bool regrouping_ = false;                          // the ranks were told to save and end, for other hosts
  bool stop_asked_ = false;                          // a signal to the launcher asked for the end
  std::optional<Failure> failure_;
  std::vector<RankState> actions_;  // at the first bad end, before the other ranks are asked to end
  bool end_announced_ = false;
  bool waits_for_unknown_ = false;     // ranks have lost a peer, and nothing tells whom
  std::vector<std::string> given_up_;  // ranks that did not end after SIGKILL, as they are told
};

}  // namespace orthant::launch
