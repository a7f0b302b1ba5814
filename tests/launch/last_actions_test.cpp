// What a failed job's report says about every rank's last action. Executed ranks are this very program, see speak().
#include <fmt/format.h>
#include <signal.h>

#include <iostream>
#include <regex>

#include "launch/launch_fixture.h"
#include "launch/shared_memory.h"
#include "orthant/launch/activity_board.h"
#include "orthant/launch/environment.h"
#include "self_program.h"

namespace orthant::launch {
namespace last_actions_test {

struct Shared {
  volatile int spoken[4];
  volatile pid_t pid;
};

void say(const std::string& text) {
  Activity::of_process().say(text);
}

void wait_forever() {
  for (;;) pause();
}

// A report with every age replaced by N.
std::string without_ages(const std::string& report) {
  return std::regex_replace(report, std::regex(R"(\(\d+\.\d s ago\))"), "(N s ago)");
}

class LastActions : public LauncherTest {
 protected:
  // Forks ranks that say `texts` (empty: nothing) and, when all have, run `after`.
  Outcome speakers(const std::vector<std::string>& texts, const std::function<int(int rank)>& after) {
    SharedMemory<Shared> shared;
    const int num_ranks = options_.num_ranks = static_cast<int>(texts.size());
    return run_forked(options_, [&](const Job& job) {
      if (!texts[job.rank].empty()) say(texts[job.rank]);
      shared->spoken[job.rank] = 1;
      for (int rank = 0; rank < num_ranks; ++rank) {
        while (shared->spoken[rank] == 0) usleep(100);
      }
      return after(job.rank);
    });
  }
};

TEST_F(LastActions, OfAllRanksFollowTheLineOfAKilledOne) {
  const auto outcome = speakers({"step 12, F layers.3 m2", "", "step 12, BW layers.5 m0"}, [](int rank) {
    if (rank == 2) raise(SIGKILL);
    wait_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.failed_rank, 2);
  EXPECT_TRUE(may_restart(outcome));
  EXPECT_EQ(without_ages(outcome.report),
            "rank 2: killed by SIGKILL\n"
            "last actions:\n"
            "  rank 0: step 12, F layers.3 m2 (N s ago)\n"
            "  rank 2: killed by SIGKILL after: step 12, BW layers.5 m0");
}

TEST_F(LastActions, StandBeforeTheLastLinesOfTheRankThatFailed) {
  const auto outcome = speakers({"step 1", "step 2"}, [](int rank) {
    if (rank == 1) wait_forever();
    std::cerr << "broken\n";
    return 41;
  });
  EXPECT_EQ(without_ages(outcome.report),
            "rank 0: exit code 41\n"
            "last actions:\n"
            "  rank 0: exit code 41 after: step 1\n"
            "  rank 1: step 2 (N s ago)\n"
            "last lines of rank 0:\n"
            "  | broken");
}

TEST_F(LastActions, TellApartWhoLostAPeerAndWhoStillWaits) {
  const auto outcome = speakers({"waiting for rank 1", "waiting for rank 0"}, [](int rank) {
    if (rank == 1) wait_forever();
    return 3;
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(without_ages(outcome.report),
            "rank 0: exit code 3\n"
            "last actions:\n"
            "  rank 0: exit code 3 after: waiting for rank 1\n"
            "  rank 1: waiting for rank 0 (N s ago)");
}

TEST_F(LastActions, AreThoseBeforeTheLauncherAskedTheRestToEnd) {
  options_.num_ranks = 2;
  SharedMemory<Shared> shared;
  const auto outcome = run_forked(options_, [&](const Job& job) {
    if (job.rank == 0) {
      while (shared->spoken[1] == 0) usleep(100);
      return 5;
    }
    signal(SIGTERM, [](int) {
      say("leaving");
      _exit(9);
    });
    say("step 8");
    shared->spoken[1] = 1;
    wait_forever();
    return 0;
  });
  EXPECT_EQ(without_ages(outcome.report), "rank 0: exit code 5\nlast actions:\n  rank 1: step 8 (N s ago)");
}

TEST_F(LastActions, OfRanksThatEndedWellAreShownAsTheyWere) {
  options_.num_ranks = 2;
  SharedMemory<Shared> shared;
  const auto outcome = run_forked(options_, [&](const Job& job) {
    if (job.rank == 0) {
      say("step 3, done");
      shared->pid = getpid();
      return 0;
    }
    while (shared->pid == 0 || kill(shared->pid, 0) == 0) usleep(100);  // until the launcher has seen its end
    say("step 3");
    return 70;
  });
  EXPECT_EQ(without_ages(outcome.report),
            "rank 1: exit code 70\n"
            "last actions:\n"
            "  rank 0: step 3, done (N s ago)\n"
            "  rank 1: exit code 70 after: step 3");
}

TEST_F(LastActions, AreLeftOutWhenARankRefusedItsSettingsOrItsData) {
  for (const int code : {2, 4}) {
    EXPECT_EQ(speakers({"step 1", "step 1"}, [&](int rank) { return rank == 1 ? code : (wait_forever(), 0); }).report,
              "rank 1: exit code " + std::to_string(code));
  }
}

TEST_F(LastActions, AreLeftOutWhenNobodySaidAnythingOrNothingFailed) {
  EXPECT_EQ(speakers({"", ""}, [](int rank) { return rank == 1 ? 6 : (wait_forever(), 0); }).report,
            "rank 1: exit code 6");
  EXPECT_EQ(speakers({"step 1", "step 1"}, [](int) { return 0; }).report, "");
}

TEST_F(LastActions, OfAnInterruptedJobAreShown) {
  const auto outcome = speakers({"waiting for rank 1", "step 4, F head m0"}, [](int rank) {
    if (rank == 0) kill(getppid(), SIGINT);
    wait_forever();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 128 + SIGINT);
  EXPECT_EQ(without_ages(outcome.report),
            "stopped by SIGINT\n"
            "last actions:\n"
            "  rank 0: waiting for rank 1 (N s ago)\n"
            "  rank 1: step 4, F head m0 (N s ago)");
}

TEST_F(LastActions, OfOneJobAreNotThoseOfTheNext) {
  speakers({"first job", "first job"}, [](int) { return 5; });
  const auto outcome = speakers({"", "second job"}, [](int) { return 5; });
  EXPECT_EQ(outcome.report.find("first job"), std::string::npos) << outcome.report;
  EXPECT_NE(outcome.report.find("second job"), std::string::npos) << outcome.report;
}

TEST_F(LastActions, OfExecutedRanksComeThroughTheInheritedDescriptor) {
  options_.num_ranks = 2;
  ProgramJob job;
  job.rank_offset = 4;
  job.world_size = 6;
  auto environment = process_environment();
  environment[kActivityVariable] = "stale";
  const auto outcome =
      run_program(options_, {"/proc/self/exe", "speak", "step 1, F embedding m0", folder_}, environment, job);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(without_ages(outcome.report),
            "rank 4: killed by SIGKILL\n"
            "last actions:\n"
            "  rank 4: killed by SIGKILL after: rank 4, step 1, F embedding m0\n"
            "  rank 5: rank 5, step 1, F embedding m0 (N s ago)\n"
            "last lines of rank 4:\n"
            "  | spoken");
}

TEST_F(LastActions, OfExecutedRanksComeThroughAShellThatStartsThem) {
  const auto outcome =
      run_program(options_, {"sh", "-c", "/proc/$PPID/exe speak 'step 2' leave; exit 9"}, process_environment());
  EXPECT_EQ(outcome.report.substr(0, outcome.report.find("\nlast lines")),
            "rank 0: exit code 9\nlast actions:\n  rank 0: exit code 9 after: rank 0, step 2");
}

// Another host that fails as soon as a rank here has written a line.
class FailsElsewhere : public ExternalEvents {
 public:
  explicit FailsElsewhere(const Capture& output) : output_(output) {}
  void add_poll_fds(std::vector<pollfd>&) const override {}
  void service() override {
    if (!output_.text().empty()) failure_ = Failure{1, 7, 3, "node 1, rank 7: killed by SIGKILL"};
  }
  const std::optional<Failure>& failure() const override { return failure_; }
  void announce_failure(const Failure&) override {}
  void announce_end(int) override {}
  std::optional<int> common_end() const override { return std::nullopt; }

 private:
  const Capture& output_;
  std::optional<Failure> failure_;
};

TEST_F(LastActions, OfThisHostAreShownWhenAnotherHostFailed) {
  FailsElsewhere events(out_);
  ProgramJob job;
  job.num_nodes = 2;
  job.world_size = 8;
  const auto outcome = run_program(options_, {"/proc/self/exe", "speak", "step 5", "wait"}, process_environment(), job,
                                   {.after_spawn = nullptr, .events = &events});
  EXPECT_EQ(outcome.failed_rank, 7);
  EXPECT_EQ(without_ages(outcome.report),
            "node 1, rank 7: killed by SIGKILL\nlast actions:\n  rank 0: rank 0, step 5 (N s ago)");
}

TEST(LastActionsText, RoundsAgesAndKeepsTheOrderOfRanks) {
  EXPECT_EQ(last_actions_text({{0, "a", 0.44, {}}, {1, "", 9, {}}, {2, "b", 5.06, {}}}, 1),
            "\nlast actions:\n  rank 0: a (0.4 s ago)\n  rank 2: b (5.1 s ago)");
  EXPECT_EQ(last_actions_text({{0, "", 0, {}}}, 0), "");
}

TEST(LastActionsText, OfManyRanksHasTheFailedOneAndThoseSilentForLongest) {
  std::vector<LastAction> actions;
  for (int rank = 0; rank < 40; ++rank) actions.push_back({rank, "x", rank == 9 ? 0.0 : 1.0 + rank % 10, {}});
  actions.resize(16);
  auto text = last_actions_text(actions, 9);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 17) << text;
  EXPECT_EQ(text.find("more ranks"), std::string::npos) << text;
  for (int rank = 16; rank < 40; ++rank) actions.push_back({rank, "x", 1.0 + rank % 10, {}});
  text = last_actions_text(actions, 9);
  std::string expected = "\nlast actions:\n  rank 9: x (0.0 s ago)";
  for (const int rank : {19, 29, 39, 8, 18, 28, 38, 7, 17, 27, 37, 6, 16, 26, 36}) {
    expected += fmt::format("\n  rank {}: x ({}.0 s ago)", rank, 1 + rank % 10);
  }
  EXPECT_EQ(text, expected + "\n  and 24 more ranks that said something later");
}

// The program of executed ranks: says `text`, then ends as told. Given a folder, the first of two ranks kills itself
// when both have spoken.
int speak(const std::string& text, const std::string& end) {
  const auto num_descriptors = open_descriptors().size();
  auto environment = process_environment();
  say(fmt::format("rank {}, {}", environment["RANK"], text));
  if (open_descriptors().size() + 1 != num_descriptors) return 77;  // the board's descriptor is closed once mapped
  std::cout << "spoken" << std::endl;
  if (end == "leave") return 0;
  if (end == "wait") wait_forever();
  const std::filesystem::path folder(end);
  std::ofstream(folder / environment["LOCAL_RANK"]) << "spoken";
  while (!exists(folder / "0") || !exists(folder / "1")) usleep(100);
  if (environment["LOCAL_RANK"] == "0") raise(SIGKILL);
  wait_forever();
  return 0;
}

const bool kSpeaks = test::add_self_program("speak", [](const auto& words) { return speak(words.at(0), words.at(1)); });

}  // namespace last_actions_test
}  // namespace orthant::launch
