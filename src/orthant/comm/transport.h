// What a backend must do: start calls of one channel. Implementations are Gloo, shared memory, NCCL, the identity (fake
// runs, groups of one), and the decorators that check calls first, stage CUDA tensors through host memory or have a
// fault.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "orthant/comm/call.h"

namespace orthant::comm {

// What a backend throws when it knows which peers (global ranks) a call failed on. Other exceptions leave that open.
class PeerFailure : public std::runtime_error {
 public:
  PeerFailure(std::vector<int> peers, const std::string& text) : std::runtime_error(text), peers_(std::move(peers)) {}
  const std::vector<int>& peers() const { return peers_; }

 private:
  std::vector<int> peers_;
};

// A started call. wait() returns when outputs are readable and inputs may be reused; it throws what the backend threw.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  // Whether wait() would return at once, as far as the backend can tell without waiting; false when it cannot.
  virtual bool done() { return false; }
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Starts the call and returns without waiting for peers. Collectives of one transport run in the order they were
  // started; messages of one directed pair and tag likewise.
  virtual std::unique_ptr<Pending> start(const Call& call) = 0;

  // Makes ready for messages between these members. Collective over the members of the pairs, which all name the same
  // ones in the same order; nothing to do where a transport reaches all members from the start.
  virtual void connect(const std::vector<MessagePair>& /*pairs*/) {}

  // How long calls that are started from now on wait for peers. Local.
  virtual void set_timeout(double timeout_seconds) = 0;
};

// Puts a transport of its own around that of a channel, or returns it as it is. `ranks` are the members' global ranks,
// `index` is this rank's place among them.
using WrapTransport = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport> inner,
                                                               const std::vector<int>& ranks, int index)>;

}  // namespace orthant::comm
