#include "orthant/cli/serving_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/cli/rank_command.h"
#include "orthant/launch/failure.h"

namespace orthant::cli {
namespace {

// Ranks that have worked for so long did not fail at what an earlier attempt failed at.
constexpr double kLongAttemptSeconds = 30;
constexpr double kStopSeconds = 10;
// Threads of a server that is killed end one after the other. The first that ends may be the one that started this
// process, which is then told while the server is still there.
constexpr double kServerEndSeconds = 1;

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// In the child: its end follows that of the server, and the terminal's Ctrl-C is for the server alone.
void become_launcher(pid_t server, int go) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  char word = 0;
  ssize_t count = 0;
  while ((count = read(go, &word, 1)) < 0 && errno == EINTR) {
  }
  if (count != 1 || getppid() != server) _exit(0);
}

void wait_while(const std::function<bool()>& condition, double seconds) {
  const auto deadline = launch::Clock::now() + launch::seconds(seconds);
  while (condition() && launch::Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

int run_rank_attempts(int most_in_vain, const std::function<bool()>& wanted, const std::function<int()>& attempt) {
  for (int in_vain = 0;;) {
    const auto began = launch::Clock::now();
    const int code = attempt();
    const bool long_one = launch::Clock::now() - began > launch::seconds(kLongAttemptSeconds);
    const bool final = code == 0 || code == 2 || code == launch::kStoppedExitCode || (code == 4 && !long_one);
    if (code == 128 + SIGTERM) wait_while(wanted, kServerEndSeconds);
    if (final || !wanted()) return code;
    in_vain = long_one ? 1 : in_vain + 1;
    if (in_vain > most_in_vain) {
      say(fmt::format("{} restarts in a row did not help: giving up", most_in_vain));
      return code;
    }
    say(fmt::format("starting all ranks again ({} of {} in a row)", in_vain, most_in_vain));
  }
}

ServingRanks::ServingRanks(const std::function<int()>& run) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw ConfigError("no pipe to be had", {.remedy = "see ulimit -n"});
  launch::Fd read_end(ends[0]);
  go_.reset(ends[1]);
  const pid_t server = getpid();
  std::cout.flush();
  pid_ = fork();
  if (pid_ < 0)
    throw ConfigError(fmt::format("cannot start a process: {}", std::strerror(errno)), {.remedy = "see ulimit -u"});
  if (pid_ > 0) return;
  go_.reset();
  become_launcher(server, read_end.get());
  int code = 70;
  try {
    code = run();
  } catch (const std::exception& error) {
    std::cerr << report_text(error, "orthant: error: ");
    code = report_of(error).exit_code;
  }
  std::cerr.flush();
  _exit(code);
}

ServingRanks::~ServingRanks() {
  wait(0);
}

void ServingRanks::go() {
  const char word = 'g';
  [[maybe_unused]] const auto written = write(go_.get(), &word, 1);
}

std::optional<int> ServingRanks::exit_code() {
  if (exit_code_) return exit_code_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = code_of(status);
  return exit_code_;
}

std::optional<int> ServingRanks::wait_until(launch::Clock::time_point deadline) {
  while (!exit_code() && launch::Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return exit_code_;
}

int ServingRanks::wait(double seconds) {
  if (const auto code = wait_until(launch::Clock::now() + launch::seconds(seconds))) return *code;
  kill(pid_, SIGTERM);
  if (const auto code = wait_until(launch::Clock::now() + launch::seconds(kStopSeconds))) return *code;
  kill(pid_, SIGKILL);
  return wait_until(launch::Clock::now() + launch::seconds(kStopSeconds)).value_or(128 + SIGKILL);
}

}  // namespace orthant::cli
