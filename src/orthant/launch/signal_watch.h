// Turns the signals a launcher cares about into a readable descriptor for as long as the object lives: ends of
// children, and SIGINT, SIGTERM, SIGHUP, SIGUSR1, which are to be forwarded. SIGPIPE is ignored meanwhile, so that a
// closed terminal or pipe shows as an error of write. The former mask and actions come back with the destructor.
#pragma once

#include <csignal>

#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }

  // Signals that arrived since the last call, SIGCHLD among them. Local, never blocks.
  std::vector<int> take();

  // For a child after fork: default actions and an empty mask, as a shell would start it. SIGHUP stays ignored under
  // nohup.
  static void reset_in_child();

 private:
  Fd fd_;
  sigset_t former_mask_{};
  struct sigaction former_child_{};
  struct sigaction former_pipe_{};
};

}  // namespace orthant::launch
