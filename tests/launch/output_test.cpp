// What becomes of the ranks' output.
#include <fcntl.h>

#include <algorithm>
#include <iostream>

#include "launch/launch_fixture.h"
#include "launch/message_of.h"
#include "launch/shared_memory.h"
#include "orthant/base/error.h"

namespace orthant::launch {
namespace output_test {

using Output = LauncherTest;

struct Board {
  volatile int value;
};

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const auto written = write(fd, text.data() + done, text.size() - done);
    if (written < 0) _exit(99);
    done += written;
  }
}

TEST_F(Output, OfRankZeroPassesThroughAndTheRestIsPrefixed) {
  options_.num_ranks = 2;
  run_forked(options_, [](const Job& job) {
    std::cout << "result " << job.rank << "\nno newline" << std::flush;
    std::cerr << "note\n";
    return 0;
  });
  EXPECT_EQ(out_.text(), "result 0\nno newline");
  const auto err = err_.text();
  for (const char* line : {"[rank 0] note\n", "[rank 1] note\n", "[rank 1] result 1\n", "[rank 1] no newline\n"}) {
    EXPECT_NE(err.find(line), std::string::npos) << err;
  }
}

TEST_F(Output, IsPrefixedWhollyOnRequest) {
  options_.output = OutputMode::kPrefixed;
  const auto body = [](const Job&) {
    std::cout << "out\n";
    std::cerr << "err\n";
    return 0;
  };
  run_forked(options_, body);
  EXPECT_EQ(out_.text(), "");
  EXPECT_NE(err_.text().find("[rank 0] out\n"), std::string::npos);
  options_.output = OutputMode::kPrefixedByStream;
  run_forked(options_, body);
  EXPECT_EQ(out_.text(), "[rank 0] out\n");
}

TEST_F(Output, KeepsLinesWholeWhenRanksWriteMuch) {
  options_.num_ranks = 4;
  constexpr int kLines = 20'000;
  const auto outcome = run_forked(options_, [](const Job& job) {
    const std::string line(50, static_cast<char>('a' + job.rank));
    for (int i = 0; i < kLines; ++i) std::cerr << line << i << "\n";
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  const auto err = err_.text();
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 4 * kLines);
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(line.starts_with("[rank "));
    ASSERT_EQ(line.substr(9, 50), std::string(50, static_cast<char>('a' + (line[6] - '0'))));
  }
}

TEST_F(Output, HandlesVeryLongLinesAndBinaryBytes) {
  options_.log_dir = folder_ / "deep" / "log";
  std::string bytes(300'000, 'x');
  bytes += std::string("\0\xff\x80\n\r\x1b tail", 11);
  const auto outcome = run_forked(options_, [&](const Job&) {
    write_all(2, bytes);
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(read_file(options_.log_dir / "rank-0.log"), bytes);
  const auto err = err_.text();
  EXPECT_EQ(std::count(err.begin(), err.end(), 'x'), 300'000);
  EXPECT_TRUE(err.ends_with("\n"));
}

TEST_F(Output, OfARankThatIsKilledArrivesComplete) {
  options_.num_ranks = 2;
  options_.log_dir = folder_;
  const auto outcome = run_forked(options_, [](const Job& job) {
    if (job.rank == 0) pause();
    write_all(2, std::string(60'000, 'y') + "\nlast words");
    raise(SIGKILL);
    return 0;
  });
  EXPECT_TRUE(outcome.report.ends_with("| last words")) << outcome.report.substr(0, 100);
  EXPECT_TRUE(read_file(folder_ / "rank-1.log").ends_with("\nlast words"));
}

TEST_F(Output, IsAppendedToTheLogsOfAnEarlierRun) {
  options_.log_dir = folder_;
  for (int i = 0; i < 2; ++i) {
    run_forked(options_, [](const Job&) {
      std::cout << "again\n";
      return 0;
    });
  }
  EXPECT_EQ(read_file(folder_ / "rank-0.log"), "again\nagain\n");
}

TEST_F(Output, MayBeClosedByARank) {
  options_.num_ranks = 2;
  const auto outcome = run_forked(options_, [](const Job&) {
    close(1);
    close(2);
    usleep(20'000);
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
}

TEST_F(Output, HeldOpenByAStrayProcessDoesNotHoldTheLauncher) {
  SharedMemory<Board> stray;
  const auto outcome = run_forked(options_, [&](const Job&) {
    const pid_t child = fork();
    if (child == 0) {
      setsid();  // out of the rank's process group
      stray->value = getpid();
      for (;;) pause();
    }
    while (stray->value == 0) usleep(100);
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  kill(stray->value, SIGKILL);
  EXPECT_TRUE(process_ends(stray->value));
}

TEST_F(Output, WhoseReaderIsGoneEndsTheJobAsInAShell) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  options_.stdout_fd = options_.stderr_fd = ends[1];
  const auto outcome = run_forked(options_, [](const Job&) {
    write_all(1, std::string(500'000, 'z'));
    pause();
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE);
  close(ends[1]);
}

TEST_F(Output, ThatNobodyReadsDoesNotMakeTheLauncherDeaf) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  SharedMemory<Board> may_read;
  const pid_t reader = fork();
  if (reader == 0) {
    close(ends[1]);
    while (may_read->value == 0) usleep(100);
    char buffer[4096];
    long total = 0;
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) total += got;
    _exit(total == 4'000'000 ? 0 : 1);
  }
  close(ends[0]);
  options_.stdout_fd = ends[1];
  options_.num_ranks = 2;
  static volatile int* flag = &may_read->value;
  const auto outcome = run_forked(options_, [](const Job& job) {
    if (job.rank == 0) {
      signal(SIGUSR1, SIG_IGN);
      write_all(1, std::string(4'000'000, 'w'));  // more than pipes and launcher hold
      return 0;
    }
    signal(SIGUSR1, [](int) { *flag = 1; });
    usleep(50'000);
    for (; *flag == 0; usleep(1000)) kill(getppid(), SIGUSR1);
    return 0;
  });
  EXPECT_EQ(outcome.exit_code, 0);
  close(ends[1]);
  int status = 0;
  waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0) << "output was lost";
}

TEST_F(Output, NamesALogFolderThatCannotBeWritten) {
  options_.log_dir = "/proc/none";
  const auto message = message_of<ConfigError>([&] { run_forked(options_, [](const Job&) { return 0; }); });
  EXPECT_NE(message.find("cannot write the log /proc/none/rank-0.log"), std::string::npos) << message;
}

}  // namespace output_test
}  // namespace orthant::launch
