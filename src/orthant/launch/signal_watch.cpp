#include "orthant/launch/signal_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action{};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

bool asks_to_stop(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

SignalWatch::SignalWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) sigaddset(&watched, signal);
  if (!is_ignored(SIGHUP)) sigaddset(&watched, SIGHUP);  // under nohup the job outlives the terminal
  // Beyond the standard descriptors, of which one may be closed and is another's then.
  const Fd made(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  fd_.reset(fcntl(made.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!fd_) throw ConfigError(fmt::format("signalfd: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
  // An ignored SIGCHLD would make the system reap ranks before we see how they ended.
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &former_child_);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &former_pipe_);
  pthread_sigmask(SIG_BLOCK, &watched, &former_mask_);
}

SignalWatch::~SignalWatch() {
  take();  // a signal that came too late to be forwarded must not strike when the mask opens
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
  sigaction(SIGPIPE, &former_pipe_, nullptr);
  sigaction(SIGCHLD, &former_child_, nullptr);
}

std::vector<int> SignalWatch::take() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

bool SignalWatch::asked_to_stop() {
  return std::ranges::any_of(take(), asks_to_stop);
}

void SignalWatch::reset_in_child() {
  const bool keep_hangup_ignored = is_ignored(SIGHUP);
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  if (keep_hangup_ignored) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGHUP, &action, nullptr);
  }
}

void SignalWatch::open_in_child(Stops stops) {
  sigset_t blocked;
  sigemptyset(&blocked);
  if (stops == Stops::kBlocked) {
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&blocked, signal);
  }
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace orthant::launch
