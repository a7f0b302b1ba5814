// Exchanges of a step that is recorded as a CUDA graph, not run. Internal to this layer.
//
// Note [Recorded exchanges]: a graph keeps what its kernels wait for, not the order in which the host started them, and
// its device may run branches one after the other. Were two exchanges on branches of their own, a rank could begin with
// the one and its peer with the other, and both would wait for ever. So while a step is recorded the exchanges of a
// rank, of all groups, stand in one line: each starts when the current stream has done what came before it, and the
// exchange before it is over. Ranks start their exchanges in one order, so the lines are alike and their first calls
// always meet. Products run beside the line. Messages between two ranks stand in no such order and are refused, as are
// tensors on the host, which a graph does not know.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/group_state.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

class RecordedExchanges {
 public:
  explicit RecordedExchanges(at::Device device) : device_(device) {}

  // Calls stand in line from here on.
  void begin();
  // The current stream waits for all of them, unless the recording was broken off; calls from here on run as they are
  // made.
  void end(bool whole);
  bool on() const { return on_; }

  // ConfigError for a call that cannot be recorded.
  std::unique_ptr<Pending> start(Transport& inner, const Call& call);

 private:
  at::Device device_;
  std::optional<c10::Stream> line_;  // of a CUDA device
  bool on_ = false;
};

// The calls of a recorded step, group by group in a communicator's order.
class RecordedCalls {
 public:
  std::vector<CallCounts> before;
  std::vector<CallCounts> after;
  std::string text;  // "12 calls on groups dp, tp"
};

// Of a communicator.
struct Recordings {
  explicit Recordings(at::Device device) : exchanges(device) {}

  // Whether somebody still has a recording. NCCL waits for its end before a communicator ends, and breaking off does,
  // too.
  bool any_left() const {
    return std::ranges::any_of(made, [](const auto& calls) { return !calls.expired(); });
  }

  RecordedExchanges exchanges;
  std::shared_ptr<RecordedCalls> under_way;
  std::vector<std::weak_ptr<const RecordedCalls>> made;
  int queue = -1;  // of the watch: steps that are played
  std::uint64_t num_played = 0;
};

// As `inner`, but for calls while a step is recorded.
std::unique_ptr<Transport> make_recordable_transport(std::unique_ptr<Transport> inner,
                                                     std::shared_ptr<RecordedExchanges> exchanges);

}  // namespace orthant::comm
