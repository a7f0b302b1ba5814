#include "orthant/launch/activity_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace activity_board_test {

using For = ActivityBoard::For;

// The i-th text of a talkative rank: its number, then one letter so often that its length tells whether it is whole.
std::string numbered_text(int i) {
  return fmt::format("{:08d}:{}", i, std::string(1 + i * 37 % 200, static_cast<char>('a' + i % 26)));
}

int number_of(const std::string& text) {
  return std::stoi(text.substr(0, 8));
}

void speak_forever(Activity& activity) {
  for (int i = 0;; ++i) activity.say(numbered_text(i % 10'000'000));
}

TEST(ActivityBoard, ShowsWhatEachSlotSaidLastAndNothingOfSilentOnes) {
  for (const auto users : {For::kForkedRanks, For::kPrograms}) {
    const ActivityBoard board(3, users);
    Activity first(board, 0), last(board, 2);
    for (int i = 0; i < 9; ++i) first.say(fmt::format("step {}", i));
    last.say("waiting");
    const auto entries = board.entries();
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].text, "step 8");
    EXPECT_EQ(entries[1].text, "");
    EXPECT_EQ(entries[1].age_seconds, 0);
    EXPECT_EQ(entries[2].text, "waiting");
    EXPECT_EQ(last.last(), "waiting");
  }
}

TEST(ActivityBoard, TellsAgesThatGrowUntilTheNextWord) {
  const ActivityBoard board(2, For::kForkedRanks);
  Activity early(board, 0), late(board, 1);
  const auto begin = Clock::now();
  early.say("early");
  late.say("late");
  const auto first = board.entries();
  auto second = board.entries();
  while (second[0].age_seconds < 0.01) second = board.entries();
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GT(second[0].age_seconds, first[0].age_seconds);
  EXPECT_LE(second[0].age_seconds, elapsed);
  const auto before = Clock::now();
  early.say("again");
  const double age = board.entries()[0].age_seconds;
  EXPECT_LE(age, std::chrono::duration<double>(Clock::now() - before).count());
}

TEST(ActivityBoard, TellsThePhaseThatEachRankIsIn) {
  const ActivityBoard board(2, For::kForkedRanks);
  Activity first(board, 0), last(board, 1);
  last.enter(JobPhase::save);
  EXPECT_EQ(board.entries()[0].phase, JobPhase::start);
  EXPECT_EQ(board.entries()[1].phase, JobPhase::save);
  EXPECT_EQ(last.phase(), JobPhase::save);
}

TEST(ActivityBoard, TellsTheMemoryThatEachRankHeldAlsoWhenItIsDead) {
  const ActivityBoard board(2, For::kForkedRanks);
  const pid_t rank = fork();
  if (rank == 0) {
    Activity activity(board, 1);
    activity.tensor_bytes().store(700);
    activity.hold_besides(50);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(rank, &status, 0);
  EXPECT_EQ(board.entries()[0].held_bytes, 0);
  EXPECT_EQ(board.entries()[1].held_bytes, 750);
}

TEST(ActivityBoard, IsReadWholeWhileTheRankSpeaks) {
  const ActivityBoard board(1, For::kForkedRanks);
  std::atomic<bool> enough = false;
  std::thread rank([&] {
    Activity activity(board, 0);
    for (int i = 0; !enough; ++i) activity.say(numbered_text(i));
  });
  int previous = -1, num_changes = 0;
  while (num_changes < 500) {
    const auto text = board.entries()[0].text;
    if (text.empty()) continue;
    const int number = number_of(text);
    if (text != numbered_text(number) || number < previous) {
      ADD_FAILURE() << "after " << previous << " came " << text;
      break;
    }
    num_changes += number != previous;
    previous = number;
  }
  enough = true;
  rank.join();
}

TEST(ActivityBoard, HoldsAWholeTextWhenTheRankIsKilledAtAnyMoment) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    const ActivityBoard board(1, For::kForkedRanks);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      board.take_slot(0);
      speak_forever(Activity::of_process());
    }
    while (board.entries()[0].text.empty()) std::this_thread::yield();
    for (auto left = random() % 400; left > 0; --left) board.entries();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    const auto text = board.entries()[0].text;
    ASSERT_FALSE(text.empty());
    EXPECT_EQ(text, numbered_text(number_of(text)));
  }
}

// While it lives, no further descriptor can be opened.
struct NoMoreDescriptors {
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &former);
    const Fd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit none{static_cast<rlim_t>(next.get()), former.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &former); }
  rlimit former{};
};

TEST(ActivityBoard, NamesTheLimitWhenItGetsNoDescriptor) {
  const auto message = message_of<ConfigError>([] {
    const NoMoreDescriptors limit;
    const ActivityBoard board(2, For::kPrograms);
  });
  EXPECT_NE(message.find("cannot make the table of what 2 ranks do: Too many open files"), std::string::npos)
      << message;
  EXPECT_NE(message.find("raise ulimit -n"), std::string::npos) << message;
}

TEST(Activity, KeepsWhatFitsWithoutHalfACharacter) {
  Activity activity;
  activity.say(std::string(300, 'x'));
  EXPECT_EQ(activity.last(), std::string(kMostActivityBytes, 'x'));
  activity.say("short");
  EXPECT_EQ(activity.last(), "short");
  for (const std::string letter : {"\u00e4", "\u20ac", "\U0001f600"}) {
    for (size_t num_before = kMostActivityBytes - 4; num_before <= kMostActivityBytes; ++num_before) {
      const std::string start(num_before, 'x');
      activity.say(start + letter + "more");
      const bool fits = num_before + letter.size() <= kMostActivityBytes;
      const auto whole = fits ? (start + letter + "more").substr(0, kMostActivityBytes) : start;
      EXPECT_EQ(activity.last(), whole) << num_before << " bytes before " << letter;
    }
  }
}

TEST(Activity, TellsTheMomentBeforeTheText) {
  const ActivityBoard board(1, For::kForkedRanks);
  Activity activity(board, 0);
  const auto told = [&] {
    EXPECT_EQ(board.entries()[0].text, activity.last());
    return activity.last();
  };
  activity.say({ActivityMoment::Kind::step, 12}, "F layers.3 m0");
  EXPECT_EQ(told(), "step 12, F layers.3 m0");
  activity.say({ActivityMoment::Kind::evaluation, 12}, "F layers.3 m0");
  EXPECT_EQ(told(), "evaluation after step 12, F layers.3 m0");
  activity.say("saving");
  EXPECT_EQ(told(), "saving") << "no moment is left over";
  activity.say({ActivityMoment::Kind::step, 7}, std::string(300, 'x'));
  EXPECT_EQ(told(), "step 7, " + std::string(kMostActivityBytes - 8, 'x'));
}

TEST(Activity, CannotBreakTheLineItIsShownIn) {
  Activity activity;
  activity.say("two\nlines\x1b[2J\x7f \u00e4");
  EXPECT_EQ(activity.last(), "two lines [2J  \u00e4");
}

TEST(Activity, OfAProcessWithoutLauncherRemembersWhatItSaid) {
  Activity& activity = Activity::of_process();
  EXPECT_EQ(&activity, &Activity::of_process());
  activity.say("alone");
  EXPECT_EQ(activity.last(), "alone");
}

TEST(Activity, FindsItsSlotByTheDescriptorInTheVariableAndClosesIt) {
  const ActivityBoard board(3, For::kPrograms);
  const auto before = open_descriptors();
  const int inherited = dup(std::stoi(board.variable(0)));
  ASSERT_EQ(board.variable(2), fmt::format("{}:2", std::stoi(board.variable(0))));
  Activity activity(fmt::format("{}:2", inherited).c_str());
  activity.say("here");
  EXPECT_EQ(board.entries()[2].text, "here");
  EXPECT_EQ(board.entries()[0].text, "");
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ActivityBoard, CannotBeCutShortByARankThatHoldsIt) {
  const ActivityBoard board(2, For::kPrograms);
  const int fd = std::stoi(board.variable(0));
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(ftruncate(fd, 1 << 20), 0);
  EXPECT_EQ(board.entries().size(), 2U);
}

TEST(Activity, SpeaksToItselfWhenTheVariableNamesNoBoard) {
  const ActivityBoard board(2, For::kPrograms);
  const int board_fd = std::stoi(board.variable(0));
  const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd empty(memfd_create("empty", MFD_CLOEXEC));
  const Fd zeros(memfd_create("zeros", MFD_CLOEXEC));
  struct stat status{};
  ASSERT_EQ(fstat(board_fd, &status), 0);
  ASSERT_EQ(ftruncate(zeros.get(), status.st_size), 0);
  const auto before = open_descriptors();
  const auto at = [](int fd, const char* slot) { return fmt::format("{}:{}", fd, slot); };
  for (const auto& variable :
       {std::string(), std::string("7"), std::string(":"), std::string("x:0"), std::string("-1:0"),
        std::string("123456:0"), std::string("99999999999:0"), at(board_fd, ""), at(board_fd, "2"), at(board_fd, "-1"),
        at(board_fd, "0 "), at(nothing.get(), "0"), at(empty.get(), "0"), at(zeros.get(), "0")}) {
    Activity activity(variable.c_str());
    activity.say("anybody?");
    EXPECT_EQ(activity.last(), "anybody?") << variable;
    EXPECT_EQ(open_descriptors(), before) << variable;
  }
  Activity unset(static_cast<const char*>(nullptr));
  unset.say("anybody?");
  EXPECT_EQ(unset.last(), "anybody?");
  for (const auto& entry : board.entries()) EXPECT_EQ(entry.text, "");
}

TEST(Activity, IsNeverGarbledByThreadsThatSpeakAtOnce) {
  Activity activity;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) activity.say(numbered_text(t * 10'000 + i));
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const auto text = activity.last();
    if (text.empty()) continue;
    EXPECT_EQ(text, numbered_text(number_of(text)));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_NE(activity.last(), "");
}

TEST(ActivityScope, GivesEachThreadAWordOfItsOwn) {
  Activity::of_process().say("the process");
  std::vector<std::thread> threads;
  std::vector<std::string> said(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const ActivityScope scope;
      for (int i = 0; i <= 500; ++i) Activity::of_process().say(fmt::format("rank {}, step {}", t, i));
      said[t] = scope.activity().last();
    });
  }
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) EXPECT_EQ(said[t], fmt::format("rank {}, step 500", t));
  EXPECT_EQ(Activity::of_process().last(), "the process");
}

TEST(ActivityScope, GivesBackTheOuterOneAtItsEnd) {
  Activity::of_process().say("the process");
  {
    const ActivityScope outer;
    Activity::of_process().say("outer");
    {
      const ActivityScope inner;
      Activity::of_process().say("inner");
      EXPECT_EQ(inner.activity().last(), "inner");
    }
    EXPECT_EQ(Activity::of_process().last(), "outer");
  }
  EXPECT_EQ(Activity::of_process().last(), "the process");
}

}  // namespace activity_board_test
}  // namespace orthant::launch
