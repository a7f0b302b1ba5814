// run_forked: how ranks end, what is reported, and what must not remain.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <iostream>
#include <random>
#include <stdexcept>

#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"
#include "orthant/launch/store_join.h"

namespace orthant::launch {
namespace forked_ranks_test {

using ForkedRanks = LauncherTest;

struct Shared {
  volatile pid_t pids[16];
  volatile int flags[16];
};

void sleep_forever() {
  for (;;) pause();
}

void die_quietly(int signal) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  raise(signal);
}

TEST_F(ForkedRanks, GiveEveryRankItsPlaceAndAConnectionToTheStoreButNoPort) {
  options_.num_ranks = 4;
  const auto outcome = run_forked(options_, [](const Job& job) {
    const auto store = join_orthant_store(job, 20);
    store->client->set(std::to_string(job.rank), "");
    if (!store->client->wait({"0", "1", "2", "3"}, 20)) return 10;
    if (num_tcp_listeners() != 0) return 11;
    std::cerr << job.rank << "/" << job.world_size << " local " << job.local_rank << "/" << job.local_world_size << " "
              << job.launcher << " " << job.rendezvous.host << "\n";
    return 0;
  });
  EXPECT_EQ(num_tcp_listeners(), 0);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_EQ(outcome.failed_rank, -1);
  EXPECT_EQ(outcome.report, "");
  for (int rank = 0; rank < 4; ++rank) {
    const auto n = std::to_string(rank);
    EXPECT_NE(err_.text().find("[rank " + n + "] " + n + "/4 local " + n + "/4 orthant 127.0.0.1\n"),
              std::string::npos);
  }
}

TEST_F(ForkedRanks, HoldNoDescriptorOfTheLauncherOrOfOtherRanks) {
  options_.num_ranks = 3;
  options_.log_dir = folder_ / "log";
  const auto before = open_descriptors();
  const auto outcome = run_forked(options_, [&](const Job& job) {
    auto now = open_descriptors();
    now.erase(std::to_string(job.rendezvous.store_fd));
    return now == before ? 0 : 1;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST_F(ForkedRanks, HaveTheUsersLimitOfOpenFilesWhichDoesNotBindTheLauncher) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{32, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  options_.num_ranks = 16;
  const auto outcome = run_forked(options_, [](const Job& job) {
    rlimit here{};
    getrlimit(RLIMIT_NOFILE, &here);
    const auto store = join_orthant_store(job, 20);
    store->client->put_fd(std::to_string(job.rank), 0, 15);
    for (int rank = 0; rank < 16; ++rank) {
      if (rank != job.rank && !store->client->get_fd(std::to_string(rank), 20)) return 9;
    }
    return here.rlim_cur == 32 ? 0 : 8;
  });
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
  EXPECT_EQ(after.rlim_cur, 32U);
}

TEST_F(ForkedRanks, ReportTheExitCodeAndTheLastLinesOfTheRankThatFailed) {
  options_.num_ranks = 3;
  const auto outcome = run_forked(options_, [](const Job& job) {
    if (job.rank != 2) sleep_forever();
    for (int i = 0; i < 40; ++i) std::cerr << "line " << i << "\n";
    return 70;
  });
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_EQ(outcome.failed_rank, 2);
  EXPECT_TRUE(outcome.report.starts_with("rank 2: exit code 70\n")) << outcome.report;
  EXPECT_NE(outcome.report.find("| line 39"), std::string::npos);
  EXPECT_NE(outcome.report.find("| line 25\n"), std::string::npos);
  EXPECT_EQ(outcome.report.find("| line 24\n"), std::string::npos);
}

TEST_F(ForkedRanks, TurnAnErrorIntoItsTextAndExitCode) {
  options_.num_ranks = 2;
  const auto outcome = run_forked(options_, [](const Job& job) -> int {
    if (job.rank == 1) throw DataError("the file is torn", {.remedy = "fetch it again"});
    sleep_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_NE(err_.text().find("[rank 1] error: the file is torn\n[rank 1]   fix: fetch it again\n"), std::string::npos)
      << err_.text();
}

TEST_F(ForkedRanks, EndWithSeventyOnAForeignException) {
  options_.num_ranks = 1;
  auto outcome = run_forked(options_, [](const Job&) -> int { throw std::logic_error("vexed"); });
  EXPECT_EQ(outcome.exit_code, 70);
  EXPECT_NE(outcome.report.find("vexed"), std::string::npos);
  outcome = run_forked(options_, [](const Job&) -> int { throw 5; });
  EXPECT_EQ(outcome.exit_code, 70);
}

TEST_F(ForkedRanks, DoNotSucceedByACodeThatNeedsMoreThanEightBits) {
  EXPECT_EQ(run_forked(options_, [](const Job&) { return 256; }).exit_code, 70);
}

TEST_F(ForkedRanks, NameTheSignalThatKilledARank) {
  options_.num_ranks = 3;
  const auto outcome = run_forked(options_, [](const Job& job) {
    if (job.rank == 1) die_quietly(SIGSEGV);
    sleep_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.report, "rank 1: killed by SIGSEGV");
}

TEST_F(ForkedRanks, BlameTheRankThatDiedAndNotThoseThatLostAPeer) {
  options_.num_ranks = 4;
  SharedMemory<Shared> shared;
  for (int round = 0; round < 5; ++round) {
    shared->flags[0] = 0;
    const auto outcome = run_forked(options_, [&](const Job& job) {
      if (job.rank != 2) return 3;  // seen first, as the peers of a dying rank often are
      usleep(20'000);
      return 4;
    });
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.failed_rank, 2) << outcome.report;
  }
}

// As on a machine where a rank has told its peers of its error long before the system lets it end.
TEST_F(ForkedRanks, BlameTheRankThatIsSlowToEndAndNotThoseThatLostIt) {
  options_.num_ranks = 2;
  const auto outcome = run_forked(options_, [](const Job& job) {
    if (job.rank == 1) return 3;
    usleep(600'000);
    return 4;
  });
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(outcome.failed_rank, 0) << outcome.report;
}

TEST_F(ForkedRanks, TakeTheFirstWhenEveryRankOnlyLostAPeer) {
  options_.num_ranks = 2;
  const auto outcome = run_forked(options_, [](const Job&) { return 3; });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_GE(outcome.failed_rank, 0);
  EXPECT_NE(outcome.report.find("exit code 3"), std::string::npos);
}

TEST_F(ForkedRanks, SurviveKillsAtRandomTimesWithoutLeavingAnything) {
  options_.num_ranks = 4;
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    SharedMemory<Shared> shared;
    const int victim = static_cast<int>(random() % 4);
    const auto delay = static_cast<useconds_t>(random() % 8000);
    const auto outcome = run_forked(options_, [&](const Job& job) {
      shared->pids[job.rank] = getpid();
      if (job.rank == (victim + 1) % 4) {  // the killer; must itself be alive when the victim is not
        while (shared->pids[victim] == 0) usleep(100);
        usleep(delay);
        kill(shared->pids[victim], SIGKILL);
      }
      for (;;) std::cerr << "working\n" << std::flush;
      return 0;
    });
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_EQ(outcome.failed_rank, victim);
    EXPECT_TRUE(outcome.report.starts_with("rank " + std::to_string(victim) + ": killed by SIGKILL")) << outcome.report;
    ftruncate(err_.fd(), 0);
    lseek(err_.fd(), 0, SEEK_SET);
  }
}

TEST_F(ForkedRanks, AreKilledWhenTheyIgnoreTheRequestToEnd) {
  options_.num_ranks = 3;
  options_.grace_seconds = 0.2;
  const auto begin = Clock::now();
  const auto outcome = run_forked(options_, [](const Job& job) {
    signal(SIGTERM, SIG_IGN);
    if (job.rank == 0) return 5;
    sleep_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
}

TEST_F(ForkedRanks, TakeTheirGrandchildrenWithThem) {
  options_.num_ranks = 2;
  SharedMemory<Shared> shared;
  const auto outcome = run_forked(options_, [&](const Job& job) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGTERM, SIG_IGN);
      sleep_forever();
    }
    shared->pids[job.rank] = child;
    while (shared->pids[0] == 0 || shared->pids[1] == 0) usleep(100);
    return job.rank;  // one ends well, one does not: neither leaves a grandchild
  });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(process_ends(shared->pids[0]));
  EXPECT_TRUE(process_ends(shared->pids[1]));
}

TEST_F(ForkedRanks, MayEndEarlyWithZero) {
  options_.num_ranks = 3;
  SharedMemory<Shared> shared;
  const auto outcome = run_forked(options_, [&](const Job& job) {
    if (job.rank == 0) return 0;
    usleep(30'000);
    shared->flags[job.rank] = 1;
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(shared->flags[1] + shared->flags[2], 2);
}

TEST_F(ForkedRanks, EndWithSeventyFiveWhenStoppedAfterSaving) {
  options_.num_ranks = 3;
  const auto outcome = run_forked(options_, [](const Job& job) { return job.rank == 1 ? 0 : 75; });
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_EQ(outcome.failed_rank, -1);
  EXPECT_EQ(outcome.report, "");
}

TEST_F(ForkedRanks, AreBoundToAllowedCoresWhenAsked) {
  options_.num_ranks = 3;
  options_.bind_cores = true;
  const auto outcome = run_forked(options_, [](const Job&) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    const auto allowed = sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT(&set) == std::max(1L, allowed / 3) ? 0 : 1;
  });
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST_F(ForkedRanks, MustBeAtLeastOne) {
  options_.num_ranks = 0;
  EXPECT_THROW(run_forked(options_, [](const Job&) { return 0; }), ConfigError);
}

TEST_F(ForkedRanks, FindStandardInputEmpty) {
  options_.num_ranks = 1;
  const auto outcome = run_forked(options_, [](const Job&) {
    char byte = 0;
    return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
  });
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST_F(ForkedRanks, DieWithTheLauncher) {
  SharedMemory<Shared> shared;
  const pid_t launcher = fork();
  if (launcher == 0) {
    options_.num_ranks = 2;
    run_forked(options_, [&](const Job& job) {
      shared->pids[job.rank] = getpid();
      sleep_forever();
      return 0;
    });
    _exit(0);
  }
  while (shared->pids[0] == 0 || shared->pids[1] == 0) usleep(100);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_TRUE(process_ends(shared->pids[0]));
  EXPECT_TRUE(process_ends(shared->pids[1]));
}

}  // namespace forked_ranks_test
}  // namespace orthant::launch
