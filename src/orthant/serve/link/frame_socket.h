// A stream socket that frames go over: one thread reads, any thread writes, and none of those waits for the other end,
// since a thread of its own sends.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "orthant/launch/sockets.h"
#include "orthant/serve/link/frame.h"

namespace orthant {

class FrameSocket {
 public:
  explicit FrameSocket(launch::Fd fd);
  // Sends what is queued, for a second at most.
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  void queue(const LinkFrame& frame);
  // Blocks: calls `take` for each frame until the other end is gone, shut() was called or `take` answers false. `look`
  // is called about every 200 ms, and ends it by false, too.
  void read(const std::function<bool(const LinkFrame&)>& take, const std::function<bool()>& look = {});
  // Ends read() soon. Any thread.
  void shut();

 private:
  void write_queued();

  launch::Fd fd_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string queued_;
  bool leaving_ = false;
  std::thread writer_;
};

}  // namespace orthant
