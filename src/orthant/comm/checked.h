// Checked mode: before a call runs, its fingerprint is compared with that of every other member. A mismatch, a call
// that one rank never makes, or two calls that wait for each other become an error on the ranks concerned instead of a
// hang or wrong data. See Note [Checked calls].
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orthant/comm/board.h"
#include "orthant/comm/call_watch.h"
#include "orthant/comm/transport.h"

namespace orthant::comm {

struct CheckedChannel {
  std::string name;        // of the channel, unique in the job
  std::vector<int> ranks;  // global ranks of the members
  int index = 0;           // this rank's place among them
  double timeout_seconds = 0;
  // Where calls run on a device after they have returned: each line's stream counts as one of its queues. Null where
  // the host waits for each call.
  std::shared_ptr<CallWatch> watch = nullptr;
};

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner, CheckedChannel channel, Store store,
                                                  std::shared_ptr<Board> board);

}  // namespace orthant::comm
