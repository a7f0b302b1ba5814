// Keeps the threads of a process that dies from leaving the system, as a device's driver does: a tracer that seizes a
// thread and never looks at it. The process is dead then, and nothing reports it until release().
#pragma once

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

#include "orthant/launch/passed_fds.h"

namespace orthant::launch {

class Holder {
 public:
  // To be made before the process it holds is forked.
  Holder() {
    auto [here, there] = stream_pair();
    tracer_ = fork();
    if (tracer_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      here.reset();
      trace(there.get());
    }
    to_tracer_ = std::move(here);
  }
  ~Holder() { release(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  // Where a held thread stays: on its way out, as in a driver that is being closed, or behind it.
  enum class At { kExit, kZombie };

  // To be called by a thread, which is held from then on when it ends.
  void hold_this_thread(At at) const {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // for hosts where only a parent may trace; else without effect
    const Request request{gettid(), at == At::kExit ? PTRACE_O_TRACEEXIT : 0};
    int failed = -1;
    if (write(to_tracer_.get(), &request, sizeof request) != sizeof request ||
        read(to_tracer_.get(), &failed, sizeof failed) != sizeof failed || failed != 0) {
      std::perror("the thread cannot be traced");
      std::abort();
    }
  }

  // To be called by a process' main thread: it gets a second thread, which is held, and ends by `end`.
  void end_with_held_thread(At at, const std::function<void()>& end) const {
    std::promise<void> is_held;
    std::thread([&] {
      hold_this_thread(at);
      is_held.set_value();
      for (;;) pause();
    }).detach();
    is_held.get_future().wait();
    end();
  }

  // Whose death lets the threads go.
  pid_t tracer() const { return tracer_; }

  void release() {
    if (tracer_ < 0) return;
    kill(tracer_, SIGKILL);
    waitpid(tracer_, nullptr, 0);
    tracer_ = -1;
  }

 private:
  struct Request {
    pid_t thread;
    long options;
  };

  [[noreturn]] static void trace(int fd) {
    Request request{};
    while (read(fd, &request, sizeof request) == sizeof request) {
      const int failed = ptrace(PTRACE_SEIZE, request.thread, nullptr, request.options) == 0 ? 0 : 1;
      if (write(fd, &failed, sizeof failed) != sizeof failed) break;
    }
    for (;;) pause();
  }

  Fd to_tracer_;
  pid_t tracer_ = -1;
};

}  // namespace orthant::launch
