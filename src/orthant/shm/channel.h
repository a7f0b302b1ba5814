// All communication of some ranks for one purpose: a line of collectives and a pair of lines for each peer. What `comm`
// uses.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "orthant/shm/collective.h"
#include "orthant/shm/pipe.h"

namespace orthant::shm {

// A started call.
class Ticket {
 public:
  Ticket(Endpoint& endpoint, std::shared_ptr<Line> line, std::shared_ptr<Operation> operation)
      : endpoint_(endpoint), line_(std::move(line)), operation_(std::move(operation)) {}

  // Blocks until the call is done. Throws PeerFailure.
  void wait() { endpoint_.wait(line_, *operation_); }
  // Whether wait() would return at once. Local.
  bool is_done() const { return operation_->is_done(); }

 private:
  Endpoint& endpoint_;
  std::shared_ptr<Line> line_;
  std::shared_ptr<Operation> operation_;
};

class Channel {
 public:
  // `name` is unique in the job and the same on all members; `ranks` are global and connected. Local.
  Channel(Endpoint& endpoint, std::string name, std::vector<int> ranks, int index, double timeout_seconds);
  // Calls under way are given up: their memory is not touched any more.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // How long calls wait for a peer from now on, those under way included.
  void set_timeout(double timeout_seconds);

  // Each starts a call and returns without waiting for peers; the memory must stay as it is until wait() has returned.
  Ticket collective(CollectiveRequest request);
  Ticket send(const std::byte* data, size_t bytes, int peer, int tag);
  Ticket receive(std::byte* data, size_t bytes, int peer, int tag);

 private:
  std::string pipe_name(int from, int to) const;
  std::shared_ptr<OutLine> line_to(int peer);
  std::shared_ptr<InLine> line_from(int peer);
  template <class T, class Start>
  Ticket start(const std::shared_ptr<T>& line, const Start& begin);

  Endpoint& endpoint_;
  std::string name_;
  std::vector<int> ranks_;
  int index_;
  double timeout_seconds_;
  std::shared_ptr<CollectiveLine> collectives_;
  std::mutex lines_mutex_;  // of the two maps and the timeout: calls may come from several threads
  std::map<int, std::shared_ptr<OutLine>> out_;
  std::map<int, std::shared_ptr<InLine>> in_;
};

}  // namespace orthant::shm
