// Watches over calls that return before they have run, as NCCL's do: the host goes on while the device waits for a
// peer. A thread looks at the first call of every queue; when one fails or is not done in time, all queues are ended,
// so that nothing on the device waits any longer, and the next call of any group throws. One per communicator.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "orthant/comm/call_failure.h"

namespace orthant::comm {

class CallWatch {
 public:
  // Whether a call is done; throws what made it fail. Called by the watching thread.
  using Look = std::function<bool()>;
  using Chronometer = std::chrono::steady_clock;

  // Each is a stream of the device, which has so many that do not hold one another up.
  static constexpr int kMostQueues = 32;

  // `leave` is called with the error when nobody was told of it within `patience_seconds`, or when this lives on for as
  // long after that: the rank is stuck in a wait that does not end, and must not go on.
  CallWatch(std::shared_ptr<NoticedFailure> noticed, std::function<void(const CommError&)> leave,
            double patience_seconds = 3);
  // After a failure waits, but not for long, until all queues are ended: a process that leaves while its device still
  // runs their calls may not come to its end.
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // A queue of calls that run in order. `end` stops those that run; it is called from a thread of its own. ConfigError
  // beyond kMostQueues.
  int add_queue(ChannelMembers members, std::optional<Store> store, std::function<void()> end);

  // The queue is not looked at any more. Whether all of its calls are done.
  bool remove_queue(int queue);

  // From now on no queue counts as done: recordings hold its calls, and whoever ended it would wait for their end.
  void give_up();

  // Waits until all calls are done; false when they are not within the time, or one has failed.
  bool wait_until_done(double timeout_seconds);

  // A call was put into its queue. Not looked at while a step is recorded, when nothing runs.
  void add(int queue, CallWords call, double timeout_seconds, Look look);
  void record(bool recording);

 private:
  struct Watched {
    CallWords call;
    double timeout_seconds = 0;
    Look look;
    Chronometer::time_point since;  // it was the first of its queue
  };
  struct Queue {
    ChannelMembers members;
    std::optional<Store> store;
    std::function<void()> end;
    std::deque<Watched> calls;
  };
  struct Failed {
    int queue = -1;
    std::string text;
    double waited_seconds = 0;
  };

  void run();
  bool any_calls() const;
  std::optional<Failed> look_at_all();
  void fail(const Failed& failed);

  std::shared_ptr<NoticedFailure> noticed_;
  std::function<void(const CommError&)> leave_;
  double patience_seconds_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Queue> queues_;
  int next_queue_ = 0;
  bool stopping_ = false;
  bool failed_ = false;
  bool recording_ = false;
  std::shared_future<void> ended_;  // all queues, after a failure
  std::thread thread_;              // last
};

}  // namespace orthant::comm
