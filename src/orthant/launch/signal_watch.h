// Turns the signals a launcher cares about into a readable descriptor for as long as the object lives: ends of
// children, and SIGINT, SIGTERM, SIGHUP, SIGUSR1, which are to be forwarded. SIGPIPE is ignored meanwhile, so that a
// closed terminal or pipe shows as an error of write. The former mask and actions come back with the destructor.
#pragma once

#include <csignal>

#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

// Whether a launcher that gets it ends its job: SIGINT, SIGTERM and SIGHUP.
bool asks_to_stop(int signal);

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }

  // Signals that arrived since the last call, SIGCHLD among them. Local, never blocks.
  std::vector<int> take();

  // Whether one of these asks to stop. Local, never blocks.
  bool asked_to_stop();

  // For a child after fork: default actions, as a shell would start it; SIGHUP stays ignored under nohup. The signals
  // watched here stay blocked until open_in_child().
  static void reset_in_child();

  // For a child that is ready: what has arrived meanwhile strikes now. SIGINT and SIGTERM stay blocked when it is a
  // program's matter to open them.
  enum class Stops { kOpen, kBlocked };
  static void open_in_child(Stops stops);

 private:
  Fd fd_;
  sigset_t former_mask_{};
  struct sigaction former_child_{};
  struct sigaction former_pipe_{};
};

}  // namespace orthant::launch
