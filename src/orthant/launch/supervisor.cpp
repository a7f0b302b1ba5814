#include "orthant/launch/supervisor.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>

#include "orthant/base/human.h"
#include "orthant/launch/process_state.h"

namespace orthant::launch {
namespace {

constexpr double kCollectSeconds = 0.2;  // for the cause of a code 3 to show up
constexpr double kUnknownSeconds = 2;    // more, while nothing else tells the cause: a busy machine ends ranks slowly
constexpr double kLastOutputSeconds = 0.1;  // for killed descendants to let go of the pipes
constexpr double kReapSeconds = 0.25;       // between two looks at who is dead, for ends that are not reported
// How many times longer a rank is waited for that ended well: nobody is in need, and what it held becomes free.
constexpr double kEndedWellTimes = 15;

int milliseconds_until(Clock::time_point time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

}  // namespace

Supervisor::Supervisor(const Options& options, SignalWatch& signals, OutputPump& pump, const ActivityBoard& board,
                       ExternalEvents* events)
    : options_(options), signals_(signals), pump_(pump), watch_(board, options.timeouts), events_(events) {}

Supervisor::~Supervisor() {
  signal_groups(SIGKILL);
  const auto given_up_at = Clock::now() + seconds(options_.killed_seconds);
  for (;;) {
    for (auto& rank : ranks_) rank.alive = rank.alive && waitpid(rank.pid, nullptr, WNOHANG) == 0;
    if (!any_alive() || Clock::now() >= given_up_at) return;
    pollfd child_ended{signals_.fd(), POLLIN, 0};
    poll(&child_ended, 1, milliseconds_until(given_up_at));
    signals_.take();
  }
}

void Supervisor::add(RankProcess process, Fd log) {
  ranks_.push_back({process.rank, process.pid});
  watch_.add(process.rank, process.pid);
  memory_.note(process.pid);
  pump_.add_rank(process.rank, std::move(process.output), std::move(process.errors), std::move(log), process.rank == 0);
}

Outcome Supervisor::run() {
  check_elsewhere();  // what arrived before the ranks were started
  while (!finished()) {
    wait_for_something();
    pump_.pump();
    handle_signals();
    check_reader();
    check_elsewhere();
    check_deadline();
    check_overdue();
    check_unreported();
    announce_end_once();
  }
  return verdict();
}

// Ranks whose output nobody reads any more are ended, as a shell ends a program in a broken pipeline.
void Supervisor::check_reader() {
  if (!pump_.stdout_is_broken() || stop_signal_ != 0 || failure_ || !any_alive()) return;
  stop_signal_ = SIGPIPE;
  terminate();
}

bool Supervisor::finished() {
  if (any_awaited()) return false;
  if (!pump_.sources_ended()) {
    if (!last_output_by_) last_output_by_ = Clock::now() + seconds(kLastOutputSeconds);
    if (Clock::now() < *last_output_by_) return false;
    pump_.close_sources();
  }
  // A second interrupt gives up on a reader that does not read, and on other hosts.
  if (phase_ == Phase::kKilled && interrupts_ >= 2) return true;
  if (!pump_.drained()) return false;
  return events_ == nullptr || failure_ || stop_signal_ != 0 || events_->common_end();
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  pump_.add_poll_fds(fds);
  if (events_ != nullptr) events_->add_poll_fds(fds);
  int milliseconds = -1;
  const auto elsewhere = events_ != nullptr ? events_->next_deadline() : std::nullopt;
  for (const auto& deadline : {deadline_, last_output_by_, next_look(), next_reap(), elsewhere}) {
    if (!deadline || (deadline == last_output_by_ && pump_.sources_ended())) continue;
    const int bounded = milliseconds_until(*deadline);
    milliseconds = milliseconds < 0 ? bounded : std::min(milliseconds, bounded);
  }
  poll(fds.data(), fds.size(), milliseconds);
}

void Supervisor::handle_signals() {
  bool child_changed = false;
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) {
      child_changed = true;
    } else {
      forward(signal);
    }
  }
  if (!child_changed) return;
  watch_.look();
  reap();
}

void Supervisor::forward(int signal) {
  if (signal == SIGINT || signal == SIGTERM) ++interrupts_;
  stop_asked_ |= asks_to_stop(signal);
  if (signal != SIGUSR1 && stop_signal_ == 0 && !failure_) stop_signal_ = signal;
  if (interrupts_ >= 2) return kill_everything();
  sent_.insert(signal);
  signal_groups(signal);
  if (end_announced_ && stop_signal_ != 0 && !failure_)
    fail_with(stopped_here(), true);  // we only wait for other hosts
}

Failure Supervisor::stopped_here() const {
  const auto text = fmt::format("node {}: stopped by {}", options_.node_rank, signal_name(stop_signal_));
  return {options_.node_rank, -1, 128 + stop_signal_, text};
}

void Supervisor::reap() {
  ++turn_;
  next_reap_ = Clock::now() + seconds(kReapSeconds);
  std::vector<RankExit> seen;
  for (auto& rank : ranks_) {
    if (!rank.alive && rank.dead_since) take_report(rank);
    const auto end = rank.alive ? end_of(rank) : std::nullopt;
    if (!end) continue;
    const bool asked = WIFSIGNALED(*end) && sent_.contains(WTERMSIG(*end));
    const bool killed = WIFSIGNALED(*end) && WTERMSIG(*end) == SIGKILL && !asked;
    const auto reason = killed ? memory_.why_killed(rank.pid) : "";
    // Left as a zombie until its group is gone, so that the group's number cannot pass to somebody else meanwhile.
    kill(-rank.pid, SIGKILL);
    take_report(rank);
    rank.alive = false;
    watch_.ended(rank.rank);
    seen.push_back({rank.rank, *end, turn_, asked, reason, reason.empty() ? "" : held_by(rank.rank)});
    const bool is_job_running = phase_ == Phase::kRunning || phase_ == Phase::kCollecting;
    if (is_job_running && is_bad(seen.back()) && !asked) rank.own_bad_end = seen.back();
  }
  exits_.insert(exits_.end(), seen.begin(), seen.end());
  for (const auto& exit : seen) note_exit(exit);
  if (phase_ == Phase::kCollecting && !any_alive()) deadline_ = Clock::now();
}

// As waitpid gives it. A rank that is dead without a report has ended after a while, too.
std::optional<int> Supervisor::end_of(Rank& rank) const {
  if (const auto end = reported_end(rank.pid)) return end;
  const auto end = unreported_end(rank.pid);
  if (!end) {
    rank.dead_since.reset();
    return std::nullopt;
  }
  if (!rank.dead_since) rank.dead_since = Clock::now();
  return Clock::now() - *rank.dead_since < seconds(most_unreported_seconds(*end)) ? std::nullopt : end;
}

// Of a rank that has ended: where the system reports it, too, nothing of it is left. Never blocks.
void Supervisor::take_report(Rank& rank) {
  if (waitpid(rank.pid, nullptr, WNOHANG) == rank.pid) rank.dead_since.reset();
}

double Supervisor::most_unreported_seconds(int status) const {
  if (phase_ == Phase::kCollecting) return kCollectSeconds;  // it may be the one that the others have lost
  return options_.unreported_seconds * (is_bad({.status = status}) ? 1 : kEndedWellTimes);
}

bool Supervisor::is_awaited(const Rank& rank) const {
  const auto patience = seconds(options_.killed_seconds);
  return rank.alive || (rank.dead_since && Clock::now() < *rank.dead_since + patience);
}

// "300 MiB in tensors, in: step 3, F layers.2 m0", by the board; empty when it had said nothing.
std::string Supervisor::held_by(int rank) const {
  const auto states = watch_.states();
  const auto found = std::ranges::find(states, rank, &RankState::rank);
  if (found == states.end() || (found->held_bytes == 0 && found->text.empty())) return "";
  return fmt::format("{} in tensors{}", format_bytes(found->held_bytes),
                     found->text.empty() ? "" : ", in: " + found->text);
}

void Supervisor::note_exit(const RankExit& exit) {
  if (!is_bad(exit)) return;
  remember_actions();
  if (phase_ == Phase::kTerminating || phase_ == Phase::kKilled) return;
  if (exit.asked && stop_signal_ == 0) stop_signal_ = WTERMSIG(exit.status);
  if (stop_signal_ != 0) return terminate();
  if (is_consequence(exit)) {
    if (phase_ == Phase::kCollecting) return;
    phase_ = Phase::kCollecting;
    deadline_ = Clock::now() + seconds(kCollectSeconds);
    return;
  }
  const auto cause = *find_cause(exits_);
  fail_with({options_.node_rank, cause.rank, job_exit_code(cause), describe(cause)}, true);
}

void Supervisor::check_elsewhere() {
  if (events_ == nullptr) return;
  events_->service();
  regroup_if_asked();
  if (!events_->failure() || failure_ || stop_signal_ != 0) return;
  fail_with(*events_->failure(), false);
}

void Supervisor::regroup_if_asked() {
  if (regrouping_ || failure_ || !events_->regroup_asked() || !any_alive()) return;
  regrouping_ = true;
  sent_.insert(SIGTERM);
  signal_groups(SIGTERM);
}

void Supervisor::check_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  deadline_.reset();
  if (phase_ == Phase::kCollecting) {
    reap();
    if (phase_ != Phase::kCollecting) return;
    // Nobody died: these ranks gave up on another that does not answer, or that had left.
    const auto awaited = watch_.find_awaited(actions_);
    const auto cause = *find_cause(exits_);
    if (awaited && is_stopped(*awaited)) return blame(*awaited);
    if (blame_leaver(cause.rank)) return;
    if (awaited) return blame(*awaited);
    if (any_alive() && !waits_for_unknown_) {
      waits_for_unknown_ = true;
      deadline_ = Clock::now() + seconds(kUnknownSeconds);
      return;
    }
    fail_with({options_.node_rank, cause.rank, job_exit_code(cause), describe(cause)}, true);
  } else if (phase_ == Phase::kTerminating) {
    kill_everything();
  } else if (phase_ == Phase::kKilled) {
    give_up();
  }
}

void Supervisor::fail_with(Failure failure, bool announce) {
  failure_ = std::move(failure);
  if (announce && events_ != nullptr) events_->announce_failure(*failure_);
  terminate();
}

void Supervisor::blame(const RankState& state) {
  fail_with({options_.node_rank, state.rank, kPeerLostExitCode, describe(state)}, true);
}

// False when no rank left the others alone. `survivor` has lost a peer, or waits for one.
bool Supervisor::blame_leaver(int survivor) {
  const auto leaver = find_leaver(exits_);
  if (!leaver) return false;
  remember_actions();
  std::string doing = "running";
  for (const auto& state : actions_) {
    if (state.rank == survivor && !state.text.empty()) doing = "in: " + state.text;
  }
  const auto text = fmt::format("rank {}: ended with exit code {} while rank {} was still {}", leaver->rank,
                                WEXITSTATUS(leaver->status), survivor, doing);
  fail_with({options_.node_rank, leaver->rank, kPeerLostExitCode, text}, true);
  return true;
}

void Supervisor::remember_actions() {
  if (actions_.empty()) actions_ = watch_.states();
}

std::optional<Clock::time_point> Supervisor::next_look() const {
  return phase_ == Phase::kRunning ? watch_.next_look() : std::nullopt;
}

// Ranks that wait for a silent one give up by themselves and say more; this is for when they do not, or there are none.
void Supervisor::check_overdue() {
  const auto look = next_look();
  if (!look || Clock::now() < *look) return;
  for (const auto& rank : ranks_) {
    if (rank.alive) memory_.note(rank.pid);
  }
  const auto overdue = watch_.find_overdue();
  if (!overdue || (!is_stopped(*overdue) && blame_leaver(overdue->rank))) return;
  blame(*overdue);
}

std::optional<Clock::time_point> Supervisor::next_reap() const {
  return any_awaited() ? std::optional(next_reap_) : std::nullopt;
}

void Supervisor::check_unreported() {
  if (next_reap() && Clock::now() >= next_reap_) reap();
}

void Supervisor::terminate() {
  remember_actions();
  phase_ = Phase::kTerminating;
  deadline_ = Clock::now() + seconds(options_.grace_seconds);
  sent_.insert(SIGTERM);
  signal_groups(SIGTERM);
  for (const auto& rank : ranks_) {
    if (!rank.alive || !is_stopped(process_state(rank.pid))) continue;
    sent_.insert(SIGKILL);
    kill(-rank.pid, SIGKILL);
  }
}

void Supervisor::kill_everything() {
  phase_ = Phase::kKilled;
  deadline_ = Clock::now() + seconds(options_.killed_seconds);
  sent_.insert(SIGKILL);
  signal_groups(SIGKILL);
}

void Supervisor::give_up() {
  for (auto& rank : ranks_) {
    if (!rank.alive) continue;
    given_up_.push_back(fmt::format("rank {} has not ended {:.6g} s after SIGKILL (process {}, state {}): given up",
                                    rank.rank, options_.killed_seconds, rank.pid, process_state(rank.pid)));
    rank.alive = false;
    rank.dead_since.reset();
    watch_.ended(rank.rank);
  }
}

void Supervisor::announce_end_once() {
  if (events_ == nullptr || end_announced_ || failure_) return;
  if (any_alive() || phase_ == Phase::kCollecting) return;
  end_announced_ = true;
  if (stop_signal_ != 0 && !ended_cleanly()) {
    events_->announce_failure(stopped_here());
  } else {
    events_->announce_end(clean_exit_code());
    stop_signal_ = 0;
  }
}

void Supervisor::signal_groups(int signal) {
  for (const auto& rank : ranks_) {
    if (rank.alive) kill(-rank.pid, signal);
  }
}

bool Supervisor::any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.alive; });
}

bool Supervisor::any_awaited() const {
  return std::ranges::any_of(ranks_, [&](const Rank& rank) { return is_awaited(rank); });
}

bool Supervisor::ended_cleanly() const {
  return std::none_of(exits_.begin(), exits_.end(), is_bad);
}

int Supervisor::clean_exit_code() const {
  const auto stopped = [](const RankExit& exit) {
    return WIFEXITED(exit.status) && WEXITSTATUS(exit.status) == kStoppedExitCode;
  };
  return std::any_of(exits_.begin(), exits_.end(), stopped) ? kStoppedExitCode : 0;
}

std::string Supervisor::last_actions(int failed_rank) const {
  std::vector<LastAction> actions;
  for (size_t i = 0; i < std::min(actions_.size(), ranks_.size()); ++i) {
    actions.push_back({ranks_[i].rank, actions_[i].text, actions_[i].age_seconds, ranks_[i].own_bad_end});
  }
  return last_actions_text(std::move(actions), failed_rank);
}

bool Supervisor::lacked_memory(int rank) const {
  return std::ranges::any_of(exits_, [&](const RankExit& exit) { return exit.rank == rank && !exit.reason.empty(); });
}

// Of each rank that has ended and that the system has not let go.
std::vector<std::string> Supervisor::still_there() const {
  std::vector<std::string> lines;
  for (const auto& rank : ranks_) {
    if (rank.alive || !rank.dead_since) continue;
    const std::chrono::duration<double> since = Clock::now() - *rank.dead_since;
    lines.push_back(
        fmt::format("rank {} is dead but still held by the system, as by a driver that ends its work on a card "
                    "(process {}, for {:.1f} s)",
                    rank.rank, rank.pid, since.count()));
  }
  return lines;
}

Outcome Supervisor::verdict() const {
  Outcome outcome;
  if (failure_) {
    outcome = {failure_->exit_code, failure_->rank, failure_->text};
    outcome.host_lost = failure_->rank < 0 && failure_->exit_code == kPeerLostExitCode;
  } else if (ended_cleanly() && given_up_.empty()) {
    outcome.exit_code = clean_exit_code();
    if (events_ != nullptr) outcome.exit_code = events_->common_end().value_or(outcome.exit_code);
  } else {
    outcome.exit_code = 128 + stop_signal_;
    outcome.report = fmt::format("stopped by {}", signal_name(stop_signal_));
    const auto cause = find_cause(exits_);
    if (cause && !is_consequence(*cause)) {
      outcome.failed_rank = cause->rank;
      outcome.report += "; " + describe(*cause);
    } else if (const auto awaited = watch_.find_awaited(actions_)) {
      outcome.report += "; " + describe(*awaited);
    }
  }
  for (const auto& lines : {given_up_, still_there()}) {
    for (const auto& text : lines) outcome.report += (outcome.report.empty() ? "" : "\n") + text;
  }
  outcome.stop_asked = stop_asked_;
  // Programs that do not know SIGTERM die of it.
  const bool ended = outcome.exit_code == kStoppedExitCode || outcome.exit_code == 128 + SIGTERM;
  outcome.regroups = ended && !stop_asked_ && events_ != nullptr && events_->regroup_asked();
  const bool no_memory = lacked_memory(outcome.failed_rank);
  if (no_memory) outcome.report += fmt::format("\n  fix: {}", kOutOfMemoryRemedy);
  // A rank that refused its data or its settings has said why, last of all; what the others did meanwhile says nothing.
  const bool refused =
      !no_memory && failure_ && (failure_->exit_code == kWrongUseExitCode || failure_->exit_code == kBadDataExitCode);
  if (!outcome.report.empty() && !refused) outcome.report += last_actions(outcome.failed_rank);
  if (outcome.failed_rank < 0 || refused) return outcome;
  const auto lines = pump_.last_lines(outcome.failed_rank);
  if (!lines.empty()) outcome.report += fmt::format("\nlast lines of rank {}:", outcome.failed_rank);
  for (const auto& line : lines) outcome.report += "\n  | " + line;
  return outcome;
}

}  // namespace orthant::launch
