// Runs a part of a test in a forked process, for what only a second process, a death or a limit can show.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace orthant::test {

// A process that runs `action`, says so, and then waits to be killed; the constructor returns once it has said so.
// Destroyed, it is killed and gone.
class ChildThatStays {
 public:
  template <typename Action>
  explicit ChildThatStays(const Action& action) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    pid_ = fork();
    if (pid_ == 0) stay(action, ends);
    close(ends[1]);
    char said = 0;
    EXPECT_EQ(read(ends[0], &said, 1), 1) << "the child failed";
    close(ends[0]);
  }
  ~ChildThatStays() { end(); }
  ChildThatStays(const ChildThatStays&) = delete;
  ChildThatStays& operator=(const ChildThatStays&) = delete;

  pid_t pid() const { return pid_; }

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  template <typename Action>
  [[noreturn]] static void stay(const Action& action, const std::array<int, 2>& ends) {
    try {
      const auto held = action();
      if (write(ends[1], "x", 1) == 1) {
        while (true) pause();
      }
    } catch (...) {
    }
    _exit(1);
  }

  pid_t pid_ = -1;
};

// Whether `action`, run where no file may grow beyond `bytes`, answers true. Writes beyond fail as on a full device.
template <typename Action>
bool true_with_file_limit(rlim_t bytes, const Action& action) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    int code = 1;
    try {
      code = action() ? 0 : 1;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace orthant::test
