// How often a job is started again, what is said, and requests to stop at every moment between two attempts.
#include "orthant/launch/restarts.h"

#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"

namespace orthant::launch {
namespace restarts_test {

const Outcome kLost{.exit_code = 3, .failed_rank = 1, .report = "rank 1: killed by SIGKILL"};

// Attempts that end as told, with what was said in between.
struct Attempts {
  std::vector<Outcome> ends;           // the last one again and again
  std::vector<std::int64_t> progress;  // after each attempt; empty: not known
  int max_restarts = 3;
  std::function<void(int)> during = {};  // an attempt
  std::function<bool()> stopped = {};

  std::vector<std::string> said = {};
  int runs = 0;

  Outcome run() {
    SignalWatch signals;
    RestartOptions options{.max_restarts = max_restarts,
                           .stop_requested = stopped,
                           .say = [&](const std::string& text) { said.push_back(text); }};
    if (!progress.empty()) {
      options.progress = [&] { return progress[std::min<std::size_t>(runs, progress.size() - 1)]; };
    }
    return run_attempts(options, signals, [&](int attempt) {
      EXPECT_EQ(attempt, runs);
      ++runs;
      if (during) during(attempt);
      return ends[std::min<std::size_t>(attempt, ends.size() - 1)];
    });
  }
};

TEST(Restarts, GoOnUntilAnAttemptEndsWell) {
  Attempts job{.ends = {kLost, kLost, {}}, .progress = {}};
  EXPECT_EQ(job.run().exit_code, 0);
  EXPECT_EQ(job.runs, 3);
  EXPECT_EQ(job.said, (std::vector<std::string>{kLost.report, "starting all ranks again (1 of 3)", kLost.report,
                                                "starting all ranks again (2 of 3)"}));
}

TEST(Restarts, EndWithTheirNumberWhenProgressIsNotKnown) {
  Attempts job{.ends = {kLost}, .progress = {}};
  const auto outcome = job.run();
  EXPECT_EQ(job.runs, 4);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.report, kLost.report);
}

TEST(Restarts, WithoutProgressAreGivenUp) {
  // The first attempt gets to step 40, the others no further.
  Attempts job{.ends = {kLost}, .progress = {-1, 40}};
  const auto outcome = job.run();
  EXPECT_EQ(job.runs, 4);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.report, "3 restarts without progress since step 40: giving up");
  EXPECT_EQ(job.said[1], "starting all ranks again from step 40: restart 1, 1 of 3 without progress");
  EXPECT_EQ(job.said[5], "starting all ranks again from step 40: restart 3, 3 of 3 without progress");
  EXPECT_EQ(job.said.back(), kLost.report);
}

TEST(Restarts, BeforeTheFirstCheckpointBeginWhereTheJobBegan) {
  Attempts job{.ends = {kLost}, .progress = {-1}, .max_restarts = 1};
  EXPECT_EQ(job.run().report, "1 restart without progress, not even a first checkpoint: giving up");
  EXPECT_EQ(job.said[1], "starting all ranks again from where the job began: restart 1, 1 of 1 without progress");
}

TEST(Restarts, AreCountedAnewAfterProgress) {
  Attempts job{.ends = {kLost}, .progress = {-1, 10, 10, 20, 20, 15, 20}, .max_restarts = 2};
  EXPECT_EQ(job.run().report, "2 restarts without progress since step 20: giving up");
  EXPECT_EQ(job.runs, 5);
}

TEST(Restarts, AreNotForWrongUseBadDataOrStops) {
  for (const int code : {2, 4, 75, 0}) {
    Attempts job{.ends = {{.exit_code = code, .failed_rank = code == 2 || code == 4 ? 0 : -1}}, .progress = {}};
    EXPECT_EQ(job.run().exit_code, code);
    EXPECT_EQ(job.runs, 1) << code;
  }
}

TEST(Restarts, DoNotFollowARequestToStopBetweenTwoAttempts) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Attempts job{.ends = {kLost}, .progress = {}, .during = [&](int) { raise(signal); }};
    const auto outcome = job.run();
    EXPECT_EQ(outcome.exit_code, 75);
    EXPECT_EQ(outcome.report, "stopped on request; the ranks are not started again and what was saved stays");
    EXPECT_EQ(job.runs, 1);
    EXPECT_EQ(job.said, std::vector<std::string>{kLost.report});
  }
}

TEST(Restarts, DoNotFollowAnAttemptThatWasAskedToStop) {
  auto end = kLost;
  end.stop_asked = true;
  Attempts job{.ends = {end}, .progress = {}};
  EXPECT_EQ(job.run().exit_code, 75);
  EXPECT_EQ(job.runs, 1);
  Attempts without{.ends = {end}, .progress = {}, .max_restarts = 0};
  EXPECT_EQ(without.run().exit_code, 3);
}

TEST(Restarts, StartNothingAfterAnEarlierRequestToStop) {
  Attempts job{.ends = {kLost}, .progress = {}, .stopped = [] { return true; }};
  const auto outcome = job.run();
  EXPECT_EQ(outcome.exit_code, 75);
  EXPECT_EQ(outcome.report, "stopped on request before the first step; nothing was changed");
  EXPECT_EQ(job.runs, 0);
}

using RestartedRanks = LauncherTest;

TEST_F(RestartedRanks, LearnWhichAttemptTheyAre) {
  options_.num_ranks = 2;
  SignalWatch signals;
  options_.signals = &signals;
  const auto outcome = run_attempts({.max_restarts = 3, .say = [](const std::string&) {}}, signals, [&](int attempt) {
    options_.restart_count = attempt;
    return run_forked(options_, [](const Job& job) {
      if (job.rank == 1 && job.restart_count < 2) raise(SIGKILL);
      return job.restart_count == 2 ? 75 : 3;
    });
  });
  EXPECT_EQ(outcome.exit_code, 75) << outcome.report;
}

TEST_F(RestartedRanks, AreNotStartedWhenASignalFindsTheLauncherEndingTheRest) {
  struct Shared {
    volatile int attempts;
    volatile int ready;
  };
  SharedMemory<Shared> shared;
  options_.num_ranks = 2;
  SignalWatch signals;
  options_.signals = &signals;
  const auto outcome = run_attempts({.max_restarts = 3, .say = [](const std::string&) {}}, signals, [&](int) {
    return run_forked(options_, [&](const Job& job) {
      if (job.rank == 1) {
        shared->attempts = shared->attempts + 1;
        while (shared->ready == 0) usleep(100);
        raise(SIGKILL);
      }
      // Ended by the launcher because of rank 1, it passes a request to stop on to the launcher.
      signal(SIGTERM, [](int) {
        kill(getppid(), SIGTERM);
        _exit(0);
      });
      shared->ready = 1;
      for (;;) pause();
      return 0;
    });
  });
  EXPECT_EQ(outcome.exit_code, 75) << outcome.report;
  EXPECT_EQ(shared->attempts, 1);
}

}  // namespace restarts_test
}  // namespace orthant::launch
