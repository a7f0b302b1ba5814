// Who may call a peer late: the progress thread and a waiter that meet on one line.
#include "orthant/shm/endpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "shm/thread_ranks.h"

namespace orthant::shm {
namespace endpoint_test {

using namespace std::chrono_literals;

// An operation that waits for rank 1 and for nobody else. While the progress thread looks at its peers, it holds that
// thread up for a moment, until somebody begins to wait.
class SlowlySearchedLine : public Line {
 public:
  bool advance() override { return false; }
  bool idle() const override { return operation.is_done(); }
  bool needs_nobody() const override { return operation.is_done(); }
  std::vector<int> awaited() const override {
    if (num_waiters.load() == 0) is_searched = true;
    for (int i = 0; i < 200 && num_waiters.load() == 0; ++i) std::this_thread::sleep_for(1ms);
    return {1};
  }
  void fail(std::exception_ptr error) override { operation.finish(std::move(error)); }

  Operation operation;
  mutable std::atomic<bool> is_searched = false;
};

TEST(Endpoint, AWaiterThatHasJustComeFindsNobodyLate) {
  auto endpoints = test::connected_endpoints(2);
  auto line = std::make_shared<SlowlySearchedLine>();
  line->timeout_seconds = 30;
  endpoints[0]->open(line, true);
  while (!line->is_searched) std::this_thread::sleep_for(1ms);
  std::thread peer([&] {
    while (line->num_waiters.load() == 0) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);
    line->operation.finish();
  });
  EXPECT_NO_THROW(endpoints[0]->wait(line, line->operation));
  peer.join();
}

}  // namespace endpoint_test
}  // namespace orthant::shm
