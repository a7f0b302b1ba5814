// How a failed call is told: everything this rank knows, and which members never made it. Internal to this layer.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/comm/call.h"
#include "orthant/comm/store.h"

namespace orthant::comm {

// The ranks of a channel and what it is called.
struct ChannelMembers {
  std::string name;
  std::vector<int> ranks;  // global
  int index = 0;
  Purpose purpose = Purpose::control;

  int own_rank() const { return ranks[static_cast<size_t>(index)]; }
};

// A call as it is told, without its tensors.
struct CallWords {
  std::string what;      // "all_reduce #12 (sum, float32 [1024])"
  std::string subjects;  // " of layers.3", or empty
  std::string line;      // Call::line()
  uint64_t sequence = 0;
  int peer = -1;  // the other end of a message
  std::source_location site = {};
};
CallWords words_of(const Call& call, int index);

// Tells the other members that this call failed here, so that they do not take this rank for the missing one. `store`
// is below the channel's name; nothing without one. Local.
void announce_failure(const ChannelMembers& members, const std::optional<Store>& store, const CallWords& call);

// A backend's failure as a CommError. May wait a second to learn which members reached the same call.
CommError call_failure(const ChannelMembers& members, const std::optional<Store>& store, const CallWords& call,
                       const std::exception& error, double waited_seconds, double timeout_seconds);

// The first failure of a rank's communication that was noticed beside its calls, where a call returns before it has
// run: whoever communicates next, on any group, is told.
class NoticedFailure {
 public:
  // The first one stays.
  void set(const CommError& error);
  // Throws it.
  void throw_if_set() const;
  // Whether somebody was told.
  bool was_told() const;

 private:
  mutable std::mutex mutex_;
  std::optional<CommError> error_;
  mutable bool told_ = false;
};

}  // namespace orthant::comm
