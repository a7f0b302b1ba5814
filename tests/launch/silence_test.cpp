// Whom a job waits for: by states and last actions alone, and as a launcher finds it with real ranks.
#include "orthant/launch/silence.h"

#include <signal.h>

#include <regex>

#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"
#include "orthant/launch/activity_board.h"
#include "orthant/launch/process_state.h"

namespace orthant::launch {
namespace silence_test {

int suspect_of(const std::vector<RankState>& ranks, double silent_seconds = 5) {
  const auto found = find_suspect(ranks, Timeouts::all(silent_seconds));
  return found ? found->rank : -1;
}

TEST(FindSuspect, NamesAStoppedRankHoweverBusyItLooks) {
  EXPECT_EQ(
      suspect_of({{0, 'S', "step 5, F layers.0 m0", 9}, {1, 'T', "step 5, sum of loss and norm over all ranks", 1}}),
      1);
  EXPECT_EQ(suspect_of({{0, 'S', "", 0}, {1, 'T', "", 0}}, 0), 1);
}

TEST(FindSuspect, NamesTheOneThatDoesNotWait) {
  for (const char* wait : {"gather layers.0", "reduce head", "reduce head m1", "sum of loss and norm over all ranks",
                           "stage 1: waiting for activations of microbatch 3 from rank 0", "send x m0 -> 1",
                           "receive_gradient x of head m0 <- 2"}) {
    const auto waits = "step 5, " + std::string(wait);
    EXPECT_EQ(suspect_of({{0, 'S', waits, 9}, {1, 'R', "step 5, F layers.3 m0", 8}, {2, 'S', waits, 7}}), 1) << wait;
  }
}

TEST(FindSuspect, NamesTheOneInAnEarlierStepThoughItsLastWordsWereAWait) {
  const auto sum = [](int step) { return "step " + std::to_string(step) + ", sum of loss and norm over all ranks"; };
  EXPECT_EQ(suspect_of({{0, 'S', "step 10, F embed m0", 9}, {1, 'S', sum(9), 9}, {2, 'X', sum(10), 9}}), 1);
  EXPECT_EQ(suspect_of({{0, 'X', sum(10), 9}, {1, 'S', sum(9), 9}}), 1);
}

TEST(FindSuspect, AmongEqualsNamesTheOneThatRunsAndThenTheLongestSilent) {
  EXPECT_EQ(suspect_of({{0, 'S', "step 5, F a m0", 9}, {1, 'R', "step 5, F a m0", 8}}), 1);
  EXPECT_EQ(suspect_of({{0, 'S', "step 5, F a m0", 8}, {1, 'S', "step 5, F a m0", 9}}), 1);
}

TEST(FindSuspect, NamesTheOneThatSavesOrEvaluatesWhileOthersWait) {
  const std::string waits = "step 5, stage 1: waiting for activations of microbatch 3 from rank 0";
  EXPECT_EQ(suspect_of({{0, 'S', waits, 9}, {1, 'S', "saving the checkpoint of step 5", 9}}), 1);
  EXPECT_EQ(suspect_of({{0, 'S', waits, 9}, {1, 'S', "evaluation after step 5, F embed m0", 9}}), 1);
}

TEST(FindSuspect, NamesNobodyWhenAllWaitOrSpokeLatelyOrAreBeforeTheFirstStep) {
  EXPECT_EQ(suspect_of({{0, 'S', "step 5, gather a", 9}, {1, 'S', "step 5, gather a", 9}}), -1);
  EXPECT_EQ(suspect_of({{0, 'S', "step 5, gather a", 9}, {1, 'R', "step 5, F a m0", 4.9}}), -1);
  EXPECT_EQ(suspect_of({{0, 'S', "", 9}, {1, 'R', "reading data", 9}}), -1);
  EXPECT_EQ(suspect_of({{0, 'R', "step 5, F a m0", 9}}, 0), -1);
  EXPECT_EQ(suspect_of({{0, 'Z', "step 5, F a m0", 9}}), -1);
}

TEST(LongestSilent, IsFoundAmongRanksInAStep) {
  EXPECT_FALSE(longest_silent({{0, 'S', "step 5, gather a", 4}, {1, 'S', "evaluation after step 5, gather a", 9}},
                              Timeouts::all(5)));
  EXPECT_EQ(longest_silent({{0, 'S', "step 5, gather a", 6}, {1, 'S', "step 5, gather a", 7}}, Timeouts::all(5))->rank,
            1);
}

TEST(LongestSilent, IsJudgedByThePhaseOfEachRank) {
  const Timeouts limits{.start_seconds = 10, .step_seconds = 5, .save_seconds = 20};
  const std::string text = "step 5, gather a";
  EXPECT_FALSE(longest_silent({{0, 'S', text, 9, JobPhase::start}, {1, 'S', text, 19, JobPhase::save}}, limits));
  EXPECT_EQ(longest_silent({{0, 'S', text, 9, JobPhase::start}, {1, 'S', text, 6, JobPhase::step}}, limits)->rank, 1);
}

TEST(DescribeState, SaysHowLongAndAfterWhat) {
  EXPECT_EQ(describe(RankState{2, 'S', "step 5, F layers.3 m0", 12.06}),
            "rank 2: silent for 12.1 s after: step 5, F layers.3 m0");
  EXPECT_EQ(describe(RankState{1, 'T', "step 5, F layers.3 m0", 3.2, JobPhase::step, 3.01}),
            "rank 1: stopped (SIGSTOP) for 3.0 s while in: step 5, F layers.3 m0");
  EXPECT_EQ(describe(RankState{1, 't', "", 0}), "rank 1: stopped (by a debugger) for 0.0 s");
}

struct Shared {
  volatile pid_t pid;
  volatile int ready[4];
};

class SilentRanks : public LauncherTest {
 protected:
  // Three ranks that speak and are all there; then each runs `after`.
  Outcome ranks(const std::vector<std::string>& texts, const std::function<int(int rank)>& after) {
    SharedMemory<Shared> shared;
    options_.num_ranks = static_cast<int>(texts.size());
    return run_forked(options_, [&](const Job& job) {
      Activity::of_process().say(texts[job.rank]);
      if (job.rank == 1) shared->pid = getpid();
      shared->ready[job.rank] = 1;
      for (int rank = 0; rank < options_.num_ranks; ++rank) {
        while (shared->ready[rank] == 0) usleep(100);
      }
      stopped_ = shared->pid;
      return after(job.rank);
    });
  }

  static void wait_until_stopped(pid_t pid) {
    while (process_state(pid) != 'T') usleep(100);
  }

  pid_t stopped_ = 0;
};

void wait_forever() {
  for (;;) pause();
}

std::string first_line(const std::string& text) {
  return std::regex_replace(text.substr(0, text.find('\n')), std::regex(R"(\d+\.\d s)"), "N s");
}

TEST_F(SilentRanks, StoppedOnesAreNamedInsteadOfThoseThatGaveUpOnThem) {
  const auto outcome = ranks({"step 3, gather a", "step 3, F a m0", "step 3, gather a"}, [&](int rank) {
    if (rank == 1) raise(SIGSTOP);
    wait_until_stopped(stopped_);
    return 3;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_TRUE(may_restart(outcome));
  EXPECT_EQ(first_line(outcome.report), "rank 1: stopped (SIGSTOP) for N s while in: step 3, F a m0");
  EXPECT_NE(outcome.report.find("rank 0: exit code 3 after: step 3, gather a"), std::string::npos) << outcome.report;
}

TEST_F(SilentRanks, ThatDoNotWaitAreNamedInsteadOfThoseThatGaveUpOnThem) {
  options_.timeouts = Timeouts::all(0.2);
  const auto outcome = ranks({"step 3, gather a", "step 3, F a m0", "step 3, gather a"}, [&](int rank) {
    if (rank == 1) wait_forever();
    usleep(150'000);  // the patience of those that wait
    return 3;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(first_line(outcome.report), "rank 1: silent for N s after: step 3, F a m0");
}

TEST_F(SilentRanks, EndTheJobWhenNobodyElseNoticesThem) {
  options_.timeouts = Timeouts::all(0.2);
  const auto outcome = ranks({"step 3, gather a", "step 3, F a m0"}, [&](int) { return wait_forever(), 0; });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_TRUE(may_restart(outcome));
  EXPECT_EQ(first_line(outcome.report), "rank 1: silent for N s after: step 3, F a m0");
}

TEST_F(SilentRanks, ThatAreStoppedAreNamedAtTheTimeoutThoughOthersWouldWaitForEver) {
  options_.timeouts = {.start_seconds = 0.3, .step_seconds = 30, .save_seconds = 30};
  const auto began = Clock::now();
  const auto outcome = ranks({"preparing", "reading weights", "preparing"}, [&](int rank) {
    if (rank == 1) raise(SIGSTOP);
    signal(SIGTERM, SIG_IGN);  // as ranks that save first
    wait_until_stopped(stopped_);
    while (process_state(stopped_) != 'X') usleep(1000);  // a rank that is gone is noticed
    return 3;
  });
  EXPECT_LT(Clock::now() - began, seconds(0.3 + 0.8));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_EQ(outcome.report.substr(0, outcome.report.find('\n')),
            "rank 1: stopped (SIGSTOP) for 0.3 s while in: reading weights");
}

TEST_F(SilentRanks, ThatAreStoppedForLessThanTheTimeoutOfTheirPhaseAreLeftAlone) {
  options_.timeouts = {.start_seconds = 0.1, .step_seconds = 0.1, .save_seconds = 30};
  const auto outcome = ranks({"saving the checkpoint of step 5", "saving the checkpoint of step 5"}, [&](int rank) {
    Activity::of_process().enter(JobPhase::save);
    if (rank == 1) return raise(SIGSTOP), 0;
    wait_until_stopped(stopped_);
    usleep(300'000);
    kill(stopped_, SIGCONT);
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST_F(SilentRanks, ThatEndedWellBeforeTheOthersAreNamedInsteadOfThem) {
  const auto outcome = ranks({"step 3, gather a", "step 2, done", "step 3, gather a"}, [&](int rank) {
    if (rank == 1) return 0;
    while (process_state(stopped_) != 'X') usleep(1000);
    return 3;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 1);
  EXPECT_TRUE(may_restart(outcome));
  EXPECT_EQ(std::regex_replace(first_line(outcome.report), std::regex("rank [02] was"), "rank N was"),
            "rank 1: ended with exit code 0 while rank N was still in: step 3, gather a");
}

TEST_F(SilentRanks, ThatWaitForOneThatEndedWellAreNotBlamedForIt) {
  options_.timeouts = Timeouts::all(0.2);
  const auto outcome = ranks({"step 3, gather a", "step 2, done"}, [&](int rank) {
    if (rank == 0) wait_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(first_line(outcome.report), "rank 1: ended with exit code 0 while rank 0 was still in: step 3, gather a");
}

TEST_F(SilentRanks, ThatAllWaitEndTheJobAllTheSame) {
  options_.timeouts = Timeouts::all(0.2);
  const auto outcome = ranks({"step 3, gather a", "step 3, gather a"}, [&](int) { return wait_forever(), 0; });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.report.find("silent for"), std::string::npos) << outcome.report;
}

TEST_F(SilentRanks, OutsideOfStepsAndThoseThatSpeakAreLeftAlone) {
  options_.timeouts = Timeouts::all(0.5);
  const auto outcome = ranks({"preparing", "step 1, F a m0"}, [&](int rank) {
    for (int i = 0; i < 70; ++i) {
      usleep(10'000);
      if (rank == 1) Activity::of_process().say("step 1, F a m0");
    }
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST_F(SilentRanks, AreNamedBesideTheSignalThatEndedTheJob) {
  options_.grace_seconds = 0.1;
  const auto outcome = ranks({"step 3, gather a", "step 3, F a m0"}, [&](int rank) {
    if (rank == 1) raise(SIGSTOP);
    signal(SIGTERM, SIG_IGN);
    wait_until_stopped(stopped_);
    kill(getppid(), SIGTERM);
    usleep(50'000);
    return 3;
  });
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  EXPECT_TRUE(outcome.stop_asked);
  EXPECT_EQ(first_line(outcome.report),
            "stopped by SIGTERM; rank 1: stopped (SIGSTOP) for N s while in: step 3, F a m0");
}

}  // namespace silence_test
}  // namespace orthant::launch
