#include "orthant/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error_text.h"
#include "orthant/base/log_level.h"

namespace orthant {
namespace log_test {

template <typename Action>
std::string stderr_of(const Action& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

class LogFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string path_ = testing::TempDir() + "orthant_log_test_" + std::to_string(getpid()) + "_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(Log, MarksLinesWithTheRank) {
  const std::string text = stderr_of([] {
    const Log log({.rank = 3});
    log.info("step 1");
    log.warn("slow peer");
    log.error("lost peer");
  });
  EXPECT_EQ(text, "[rank 3] step 1\n[rank 3] warning: slow peer\n[rank 3] error: lost peer\n");
}

TEST(Log, MarksLinesWithTheProgramWhenThereIsNoRank) {
  EXPECT_EQ(stderr_of([] { Log().warn("no device"); }), "orthant: warning: no device\n");
}

TEST(Log, MarksEveryLineOfAMessage) {
  EXPECT_EQ(stderr_of([] { Log({.rank = 0}).error("bad value\n  fix: use 4"); }),
            "[rank 0] error: bad value\n[rank 0]   fix: use 4\n");
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) {
  const std::string text = stderr_of([] {
    const Log quiet({.level = LogLevel::kWarning});
    quiet.debug("a");
    quiet.info("b");
    quiet.warn("c");
    Log({.level = LogLevel::kDebug}).debug("d");
    Log({.level = LogLevel::kOff}).error("e");
  });
  EXPECT_EQ(text, "orthant: warning: c\northant: debug: d\n");
}

TEST(Log, ColoursOnlyWhenAsked) {
  EXPECT_EQ(stderr_of([] { Log({.color = true}).warn("x"); }), "orthant: \033[33mwarning: x\033[0m\n");
  EXPECT_EQ(stderr_of([] { Log({.color = true}).error("x"); }), "orthant: \033[31merror: x\033[0m\n");
  EXPECT_EQ(stderr_of([] { Log({.color = true}).info("x"); }), "orthant: x\n");
  EXPECT_EQ(stderr_of([] { Log({.color = false}).error("x"); }), "orthant: error: x\n");
}

TEST(Log, WritesBracesAndPercentSignsAsTheyAre) {
  EXPECT_EQ(stderr_of([] { Log().info("{} {0:x} %v %s"); }), "orthant: {} {0:x} %v %s\n");
}

TEST_F(LogFile, ReceivesTheSameLinesWithoutColours) {
  stderr_of([&] { Log({.rank = 1, .color = true, .file = path_}).warn("x"); });
  EXPECT_EQ(content(), "[rank 1] warning: x\n");
}

TEST_F(LogFile, IsAppendedTo) {
  stderr_of([&] {
    Log({.file = path_}).info("first");
    Log({.file = path_}).info("second");
  });
  EXPECT_EQ(content(), "orthant: first\northant: second\n");
}

TEST_F(LogFile, KeepsLinesOfManyThreadsWhole) {
  stderr_of([&] {
    const Log log({.file = path_});
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([log] {
        for (int j = 0; j < 200; ++j) log.info("0123456789012345678901234567890123456789");
      });
    }
    for (auto& thread : threads) thread.join();
  });
  std::istringstream lines(content());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_EQ(line, "orthant: 0123456789012345678901234567890123456789");
  }
  EXPECT_EQ(count, 1600);
}

TEST(Log, RefusesAFileThatCannotBeOpened) {
  const std::string text = error_text<ConfigError>([] { Log({.file = "/dev/null/log.txt"}); });
  EXPECT_TRUE(text.starts_with("cannot open the log file /dev/null/log.txt: ")) << text;
  EXPECT_TRUE(text.ends_with("\n  fix: name a file in a folder that can be written to")) << text;
}

TEST(Log, ReadsLevelNames) {
  EXPECT_EQ(parse_log_level("debug", "--log-level"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("off", "--log-level"), LogLevel::kOff);
  EXPECT_EQ(error_text<ConfigError>([] { parse_log_level("warn", "--log-level"); }),
            "--log-level: unknown log level \"warn\"\n  fix: use warning");
  EXPECT_EQ(error_text<ConfigError>([] { parse_log_level("3", "--log-level"); }),
            "--log-level: unknown log level \"3\"\n  fix: use debug, info, warning, error or off");
}

}  // namespace log_test
}  // namespace orthant
