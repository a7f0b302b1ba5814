// Descriptors between ranks that are threads of one process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "orthant/launch/fd_exchange.h"

namespace orthant::comm {

class ProcessDescriptors : public launch::FdExchange {
 public:
  void put_fd(const std::string& key, int fd, int num_readers) override {
    if (num_readers < 1) return;
    std::lock_guard lock(mutex_);
    held_[key] = {launch::Fd(fcntl(fd, F_DUPFD_CLOEXEC, 3)), num_readers};
    changed_.notify_all();
  }

  std::optional<launch::PassedFd> get_fd(const std::string& key, double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    const auto came = [&] { return held_.contains(key); };
    if (!changed_.wait_for(lock, launch::seconds(timeout_seconds), came)) return std::nullopt;
    auto& held = held_[key];
    launch::PassedFd passed{launch::Fd(fcntl(held.fd.get(), F_DUPFD_CLOEXEC, 3)), {}, getpid()};
    if (--held.readers_left == 0) held_.erase(key);
    return passed;
  }

 private:
  struct Held {
    launch::Fd fd;
    int readers_left = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Held> held_;
};

}  // namespace orthant::comm
