// What the local launcher must know of the rest of a job on several hosts: whether something failed elsewhere, and when
// all have ended. The launcher's loop waits on the descriptors and calls service() after every wait.
#pragma once

#include <poll.h>

#include <optional>
#include <vector>

#include "orthant/launch/failure.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {

class ExternalEvents {
 public:
  virtual ~ExternalEvents() = default;

  virtual void add_poll_fds(std::vector<pollfd>& fds) const = 0;

  // When service() must be called even if nothing has arrived; nothing: never.
  virtual std::optional<Clock::time_point> next_deadline() const { return std::nullopt; }

  // Handles what has arrived. Never blocks.
  virtual void service() = 0;

  // The first failure elsewhere, once known. It ends the ranks here.
  virtual const std::optional<Failure>& failure() const = 0;

  // Whether the attempt is to end at a checkpoint, for another one with other hosts: ranks here get SIGTERM then.
  virtual bool regroup_asked() const { return false; }

  // Tells the others that the job has failed here. Never blocks.
  virtual void announce_failure(const Failure& failure) = 0;

  // Tells the others that all ranks here have ended with 0 or 75. Never blocks.
  virtual void announce_end(int exit_code) = 0;

  // The exit code of the whole job once every host has announced its end.
  virtual std::optional<int> common_end() const = 0;
};

}  // namespace orthant::launch
