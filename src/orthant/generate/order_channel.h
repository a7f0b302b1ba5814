// Orders from rank 0 to all others, and tokens back from the ranks that choose them. Messages between two ranks each,
// so that stages go on while others are still busy with earlier steps.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "orthant/comm/communicator.h"
#include "orthant/serve/step_order.h"

namespace orthant {

class OrderChannel {
 public:
  explicit OrderChannel(const comm::Communicator& communicator) : world_(communicator.world()) {}
  // Waits for what is still under way.
  ~OrderChannel();
  OrderChannel(const OrderChannel&) = delete;
  OrderChannel& operator=(const OrderChannel&) = delete;

  // Returns before the other rank has it.
  void send(const StepOrder& order, int rank);
  void send(std::span<const double> numbers, int rank);
  // Block until it comes. CommError as for any message.
  StepOrder receive_order(int rank);
  std::vector<double> receive_numbers(std::size_t count, int rank);

 private:
  struct Sent {
    at::Tensor tensor;
    comm::Work work;
  };
  void send(const at::Tensor& tensor, int rank, int tag);
  at::Tensor receive(at::Tensor into, int rank, int tag);

  comm::Group world_;
  std::map<int, std::deque<Sent>> sent_;  // by rank
};

}  // namespace orthant
