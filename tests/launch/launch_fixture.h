// What tests of the launcher share: captured output, a folder that goes away, and the check that no descriptor, child
// process or signal mask is left behind.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "orthant/launch/local_ranks.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file in memory that a launcher can write to like a terminal.
class Capture {
 public:
  Capture() : fd_(memfd_create("capture", MFD_CLOEXEC)) {}
  int fd() const { return fd_.get(); }
  std::string text() const { return read_file("/proc/self/fd/" + std::to_string(fd_.get())); }

 private:
  Fd fd_;
};

// TCP sockets that this process listens on.
inline int num_tcp_listeners() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int accepts = 0, domain = AF_UNIX;
    socklen_t length = sizeof accepts;
    const int fd = std::stoi(entry.path().filename());
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) != 0) continue;
    length = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    count += accepts != 0 && domain != AF_UNIX;
  }
  return count;
}

inline std::set<std::string> open_descriptors() {
  std::set<std::string> names;
  // The iteration's own descriptor is closed again before anybody compares.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (!error && target.string().find("/fd") == std::string::npos) names.insert(entry.path().filename());
  }
  return names;
}

// The exit codes of all these children, in their order; -signal where one ended a child.
inline std::vector<int> wait_for(std::vector<pid_t>& children) {
  std::vector<int> codes;
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  children.clear();
  return codes;
}

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/orthant-launch-XXXXXX";
    folder_ = mkdtemp(pattern);
    options_.stdout_fd = out_.fd();
    options_.stderr_fd = err_.fd();
    descriptors_ = open_descriptors();
    sigprocmask(SIG_SETMASK, nullptr, &mask_);
  }

  void TearDown() override {
    EXPECT_EQ(open_descriptors(), descriptors_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, nullptr, &mask);
    for (int signal = 1; signal < NSIG; ++signal) EXPECT_EQ(sigismember(&mask, signal), sigismember(&mask_, signal));
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path folder_;
  Capture out_;
  Capture err_;
  LocalOptions options_;

 private:
  std::set<std::string> descriptors_;
  sigset_t mask_{};
};

// True once the process is gone or only a zombie of somebody else; waits a little, because death by signal takes a
// moment.
inline bool process_ends(pid_t pid) {
  for (int i = 0; i < 2000; ++i) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z" || state == "X") return true;
    usleep(1000);
  }
  return false;
}

}  // namespace orthant::launch
