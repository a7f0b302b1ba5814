#include "orthant/launch/failure.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

namespace orthant::launch {
namespace {

std::string how_it_ended(const RankExit& exit) {
  if (!WIFSIGNALED(exit.status)) return fmt::format("exit code {}", WEXITSTATUS(exit.status));
  const auto reason = exit.reason.empty() ? "" : ": " + exit.reason;
  return fmt::format("killed by {}{}", signal_name(WTERMSIG(exit.status)), reason);
}

}  // namespace

Failure seen_elsewhere(Failure failure) {
  if (failure.rank >= 0) failure.text = fmt::format("node {}, {}", failure.node, failure.text);
  return failure;
}

bool may_restart(const Outcome& outcome) {
  const bool lost = outcome.failed_rank >= 0 || outcome.host_lost;
  return lost && outcome.exit_code != kWrongUseExitCode && outcome.exit_code != kBadDataExitCode;
}

bool is_bad(const RankExit& exit) {
  if (WIFSIGNALED(exit.status)) return true;
  const int code = WEXITSTATUS(exit.status);
  return code != 0 && code != kStoppedExitCode;
}

bool is_consequence(const RankExit& exit) {
  return exit.asked || (WIFEXITED(exit.status) && WEXITSTATUS(exit.status) == kPeerLostExitCode);
}

std::optional<RankExit> find_cause(const std::vector<RankExit>& exits) {
  const auto order = [](const RankExit& exit) {
    return std::tuple(is_consequence(exit), exit.turn, !WIFSIGNALED(exit.status));
  };
  std::optional<RankExit> cause;
  for (const auto& exit : exits) {
    if (is_bad(exit) && (!cause || order(exit) < order(*cause))) cause = exit;
  }
  return cause;
}

std::optional<RankExit> find_leaver(const std::vector<RankExit>& exits) {
  const auto cause = find_cause(exits);
  if (cause && !is_consequence(*cause)) return std::nullopt;
  std::optional<RankExit> leaver;
  for (const auto& exit : exits) {
    if (is_bad(exit) || (cause && exit.turn > cause->turn)) continue;
    if (!leaver || exit.turn < leaver->turn) leaver = exit;
  }
  return leaver;
}

std::string describe(const RankExit& exit) {
  const auto held = exit.held.empty() ? "" : "; it held " + exit.held;
  return fmt::format("rank {}: {}{}", exit.rank, how_it_ended(exit), held);
}

std::string last_actions_text(std::vector<LastAction> actions, int failed_rank) {
  std::erase_if(actions, [](const LastAction& action) { return action.text.empty(); });
  if (actions.empty()) return "";
  const auto num_left_out = actions.size() - std::min(actions.size(), kMostLastActions);
  if (num_left_out > 0) {
    const auto order = [&](const LastAction& action) {
      return std::tuple(action.rank != failed_rank, -action.age_seconds, action.rank);
    };
    std::sort(actions.begin(), actions.end(),
              [&](const LastAction& a, const LastAction& b) { return order(a) < order(b); });
    actions.resize(kMostLastActions);
  }
  std::string text = "\nlast actions:";
  for (const auto& [rank, said, age_seconds, end] : actions) {
    text += end ? fmt::format("\n  rank {}: {} after: {}", rank, how_it_ended(*end), said)
                : fmt::format("\n  rank {}: {} ({:.1f} s ago)", rank, said, age_seconds);
  }
  if (num_left_out > 0) text += fmt::format("\n  and {} more ranks that said something later", num_left_out);
  return text;
}

int job_exit_code(const RankExit& exit) {
  if (!WIFSIGNALED(exit.status)) return WEXITSTATUS(exit.status);
  return exit.reason.empty() ? kPeerLostExitCode : kBadDataExitCode;
}

std::string signal_name(int signal) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},
      {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},
      {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
      {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},
  };
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return fmt::format("signal {}", signal);
}

}  // namespace orthant::launch
