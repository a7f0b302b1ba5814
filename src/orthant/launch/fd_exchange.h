// How ranks of one host hand descriptors to each other: by a store that passes them on with the sender's credentials,
// or inside one process. What arrives is checked by whoever uses it; who sent it is known for sure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

struct PassedFd {
  Fd fd;
  Fd pidfd;       // of the process that handed it in; readable when that has ended; empty: this very process, or an old
                  // system
  pid_t pid = 0;  // its number
};

class FdExchange {
 public:
  virtual ~FdExchange() = default;

  // Leaves a copy of `fd` for `num_readers` takers. Once per key.
  virtual void put_fd(const std::string& key, int fd, int num_readers) = 0;

  // Blocks until it was left there; nothing after `timeout_seconds`.
  virtual std::optional<PassedFd> get_fd(const std::string& key, double timeout_seconds) = 0;

  // The same for several, in their order, each within `timeout_seconds` from now: one trip where the exchange can.
  virtual std::vector<std::optional<PassedFd>> get_fds(const std::vector<std::string>& keys, double timeout_seconds) {
    const auto deadline = Clock::now() + seconds(timeout_seconds);
    std::vector<std::optional<PassedFd>> passed;
    for (const auto& key : keys) passed.push_back(get_fd(key, left_until(deadline)));
    return passed;
  }
};

}  // namespace orthant::launch
