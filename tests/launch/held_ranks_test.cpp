// Ranks that are dead while the system holds them, as one inside a device's driver: nothing reports their end.
#include <sys/syscall.h>

#include <regex>

#include "launch/holder.h"
#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"
#include "orthant/launch/process_state.h"
#include "orthant/launch/supervisor.h"

namespace orthant::launch {
namespace held_ranks_test {

using At = Holder::At;

struct Shared {
  volatile pid_t pids[2];
  volatile int ready;
};

class HeldRanks : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    options_.grace_seconds = 60;  // which no dead rank is given
    options_.killed_seconds = 0.3;
    options_.unreported_seconds = 0.3;
  }

  // Of a rank that was held, when it is let go.
  static int status_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }

  SharedMemory<Shared> shared_;
};

void live_forever() {
  for (;;) pause();
}

void kill_self() {
  kill(getpid(), SIGKILL);
  live_forever();
}

pid_t wait_for_pid(const volatile pid_t& pid) {
  while (pid == 0) usleep(100);
  return pid;
}

std::string without_numbers(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(process \d+|for \d+\.\d s)"), "N");
}

std::string held_line(int rank) {
  return "rank " + std::to_string(rank) +
         " is dead but still held by the system, as by a driver that ends its work on a card (N, N)";
}

TEST_F(HeldRanks, ThatWereKilledAreNamedThoughTheirPeersAreHeldToo) {
  options_.num_ranks = 2;
  Holder of_killed, of_peer;
  const auto begin = Clock::now();
  const auto outcome = run_forked(options_, [&](const Job& job) {
    signal(SIGTERM, SIG_IGN);  // however late the peer ends, it ends by itself
    shared_->pids[job.rank] = getpid();
    wait_for_pid(shared_->pids[1 - job.rank]);
    if (job.rank == 1) of_killed.end_with_held_thread(At::kExit, kill_self);
    while (process_state(shared_->pids[1]) != 'Z') usleep(100);
    of_peer.end_with_held_thread(At::kZombie, [] { _exit(3); });
    return 0;
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_TRUE(may_restart(outcome));
  EXPECT_EQ(without_numbers(outcome.report), "rank 1: killed by SIGKILL\n" + held_line(0) + "\n" + held_line(1));
  of_killed.release();
  of_peer.release();
  EXPECT_EQ(status_of(shared_->pids[0]), W_EXITCODE(3, 0));
  EXPECT_EQ(status_of(shared_->pids[1]), SIGKILL);
}

TEST_F(HeldRanks, AreNamedWhenTheirPeersHaveOnlyLostThem) {
  options_.num_ranks = 2;
  options_.unreported_seconds = 60;
  Holder holder;
  const auto begin = Clock::now();
  const auto outcome = run_forked(options_, [&](const Job& job) {
    shared_->pids[job.rank] = getpid();
    if (job.rank == 1) {
      holder.hold_this_thread(At::kZombie);
      kill_self();
    }
    while (process_state(wait_for_pid(shared_->pids[1])) != 'Z') usleep(100);
    return 3;  // its peer is gone, which the launcher cannot see
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(without_numbers(outcome.report), "rank 1: killed by SIGKILL\n" + held_line(1));
  holder.release();
  EXPECT_EQ(status_of(shared_->pids[1]), SIGKILL);
}

TEST_F(HeldRanks, AreGivenUpAfterTheLauncherKilledThem) {
  options_.num_ranks = 2;
  options_.grace_seconds = 0.2;
  options_.unreported_seconds = 60;
  Holder holder;
  const auto begin = Clock::now();
  const auto outcome = run_forked(options_, [&](const Job& job) {
    shared_->pids[job.rank] = getpid();
    if (job.rank == 1) {
      signal(SIGTERM, SIG_IGN);
      holder.end_with_held_thread(At::kExit, [&] {
        shared_->ready = 1;
        live_forever();
      });
    }
    while (shared_->ready == 0) usleep(100);
    return 5;
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_EQ(outcome.failed_rank, 0);
  EXPECT_NE(outcome.report.find("rank 1 has not ended 0.3 s after SIGKILL (process "), std::string::npos)
      << outcome.report;
  holder.release();
  EXPECT_EQ(status_of(shared_->pids[1]), SIGKILL);
}

TEST_F(HeldRanks, ThatEndedWellFailNothing) {
  options_.num_ranks = 1;
  options_.unreported_seconds = 0.02;
  Holder holder;
  const auto outcome = run_forked(options_, [&](const Job&) {
    shared_->pids[0] = getpid();
    holder.end_with_held_thread(At::kZombie, [] { _exit(0); });
    return 1;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.failed_rank, -1);
  EXPECT_EQ(without_numbers(outcome.report), held_line(0));
  holder.release();
  EXPECT_EQ(status_of(shared_->pids[0]), 0);
}

TEST_F(HeldRanks, ThatAreLetGoBeforeTheEndAreNotTold) {
  options_.num_ranks = 2;
  Holder holder;
  const auto outcome = run_forked(options_, [&](const Job& job) {
    sigset_t asked_to_end;
    sigemptyset(&asked_to_end);
    sigaddset(&asked_to_end, SIGTERM);
    sigprocmask(SIG_BLOCK, &asked_to_end, nullptr);
    shared_->pids[job.rank] = getpid();
    wait_for_pid(shared_->pids[1 - job.rank]);
    if (job.rank == 1) holder.end_with_held_thread(At::kExit, kill_self);
    int signal = 0;
    sigwait(&asked_to_end, &signal);  // the launcher has taken rank 1 for ended
    kill(holder.tracer(), SIGKILL);
    while (process_state(shared_->pids[1]) != 'X') usleep(100);
    return 0;
  });
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.report, "rank 1: killed by SIGKILL");
}

TEST_F(HeldRanks, AreNotThoseThatGoOnWithoutTheirMainThread) {
  options_.num_ranks = 1;
  options_.unreported_seconds = 0.02;
  const auto outcome = run_forked(options_, [](const Job&) {
    std::thread([] {
      usleep(800'000);  // longer than the launcher waits for any dead rank
      _exit(9);
    }).detach();
    syscall(SYS_exit, 0);  // as pthread_exit() does in the end, without unwinding the launcher's frames
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_EQ(outcome.report, "rank 0: exit code 9");
}

TEST_F(HeldRanks, DoNotHoldALauncherThatGivesUpBeforeItRuns) {
  Holder holder;
  const auto begin = Clock::now();
  {
    SignalWatch signals;
    OutputPump pump(OutputMode::kRankZero, out_.fd(), err_.fd());
    const ActivityBoard board(2, ActivityBoard::For::kForkedRanks);
    Supervisor supervisor({.killed_seconds = 0.3}, signals, pump, board, nullptr);
    supervisor.add(fork_rank(SpawnOptions(),
                             [&] {
                               holder.end_with_held_thread(At::kExit, [&] {
                                 shared_->pids[0] = getpid();
                                 live_forever();
                               });
                               return 0;
                             }),
                   {});
    supervisor.add(fork_rank(SpawnOptions(),
                             [] {
                               live_forever();
                               return 0;
                             }),
                   {});
    wait_for_pid(shared_->pids[0]);
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
  holder.release();
  EXPECT_EQ(status_of(shared_->pids[0]), SIGKILL);
}

}  // namespace held_ranks_test
}  // namespace orthant::launch
