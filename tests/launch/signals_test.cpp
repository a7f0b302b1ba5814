// Signals to the launcher. Ranks send them to their parent, so nothing here depends on time.
#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"

namespace orthant::launch {
namespace signals_test {

using ForwardedSignals = LauncherTest;

struct Shared {
  volatile int ready[8];
  volatile int seen[8];
};
Shared* board = nullptr;
int own_rank = 0;

void install(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

void count_signal(int) {
  board->seen[own_rank] = board->seen[own_rank] + 1;
}
void leave_after_saving(int) {
  _exit(75);
}
void leave_well(int) {
  _exit(0);
}

// Runs two ranks that prepare themselves; rank 0 then sends `signal` to the launcher and calls `after`, rank 1 just
// waits.
template <typename Prepare, typename After>
Outcome signalled(const LocalOptions& options, int signal, const Prepare& prepare, const After& after) {
  SharedMemory<Shared> shared;
  board = shared.operator->();
  LocalOptions two = options;
  two.num_ranks = 2;
  return run_forked(two, [&](const Job& job) {
    own_rank = job.rank;
    prepare();
    board->ready[job.rank] = 1;
    while (board->ready[0] + board->ready[1] < 2) usleep(100);
    if (job.rank == 0) {
      kill(getppid(), signal);
      after();
    }
    while (board->seen[7] == 0) usleep(100);
    return 0;
  });
}

void nothing() {}

TEST_F(ForwardedSignals, LetRanksStopAfterSaving) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto outcome = signalled(options_, signal, [&] { install(signal, leave_after_saving); }, nothing);
    EXPECT_EQ(outcome.exit_code, 75);
    EXPECT_EQ(outcome.report, "");
  }
}

TEST_F(ForwardedSignals, EndTheJobWithOneHundredTwentyEightPlusTheirNumber) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto outcome = signalled(options_, signal, nothing, nothing);
    EXPECT_EQ(outcome.exit_code, 128 + signal);
    EXPECT_EQ(outcome.failed_rank, -1);
    EXPECT_TRUE(outcome.report.starts_with("stopped by SIG")) << outcome.report;
  }
}

TEST_F(ForwardedSignals, EndTheJobWithZeroWhenAllRanksDo) {
  const auto outcome = signalled(options_, SIGTERM, [] { install(SIGTERM, leave_well); }, nothing);
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST_F(ForwardedSignals, NameARankThatFailsInsteadOfStopping) {
  const auto outcome = signalled(
      options_, SIGTERM, [] { install(SIGTERM, own_rank == 1 ? [](int) { _exit(70); } : leave_after_saving); },
      nothing);
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  EXPECT_TRUE(outcome.report.starts_with("stopped by SIGTERM; rank 1: exit code 70")) << outcome.report;
}

TEST_F(ForwardedSignals, KillAtTheSecondTime) {
  const auto outcome = signalled(
      options_, SIGINT, [] { install(SIGINT, count_signal); },
      [] {
        while (board->seen[0] == 0 || board->seen[1] == 0) usleep(100);
        kill(getppid(), SIGINT);
      });
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT);
}

TEST_F(ForwardedSignals, ReachRanksAsUserSignalsWithoutEndingTheJob) {
  const auto outcome = signalled(
      options_, SIGUSR1, [] { install(SIGUSR1, count_signal); },
      [] {
        while (board->seen[0] == 0 || board->seen[1] == 0) usleep(100);
        board->seen[7] = 1;
      });
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST_F(ForwardedSignals, EndRanksThatDoNotHandleUserSignals) {
  EXPECT_EQ(signalled(options_, SIGUSR1, nothing, nothing).exit_code, 128 + SIGUSR1);
}

TEST_F(ForwardedSignals, DoNotEndARankBeforeItHasItsHandlers) {
  SharedMemory<Shared> shared;
  board = shared.operator->();
  options_.take_signals = [] {
    // Both are still blocked here, so neither ends this rank.
    for (const int signal : {SIGTERM, SIGINT}) raise(signal);
    for (const int signal : {SIGTERM, SIGINT}) install(signal, count_signal);
  };
  const auto outcome = run_forked(options_, [](const Job&) { return board->seen[0] == 2 ? 0 : 1; });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST_F(ForwardedSignals, AreKeptForAProgramThatOpensThemWhenItIsReady) {
  const std::vector<std::string> argv{"sh", "-c", "kill -TERM $$; kill -INT $$; exit 7"};
  options_.take_signals = nothing;
  EXPECT_EQ(run_program(options_, argv, {{"PATH", "/usr/bin:/bin"}}).exit_code, 7);
  options_.take_signals = nullptr;
  EXPECT_EQ(run_program(options_, argv, {{"PATH", "/usr/bin:/bin"}}).exit_code, 3);
}

TEST_F(ForwardedSignals, LeaveTheActionsOfTheCallerAsTheyWere) {
  install(SIGPIPE, SIG_DFL);
  install(SIGCHLD, SIG_IGN);
  options_.num_ranks = 1;
  EXPECT_EQ(run_forked(options_, [](const Job&) { return 5; }).exit_code, 5);
  struct sigaction action{};
  sigaction(SIGCHLD, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
  sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
  install(SIGCHLD, SIG_DFL);
}

}  // namespace signals_test
}  // namespace orthant::launch
