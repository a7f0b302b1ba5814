// A rank's connection to the store of its job. Any number of threads may call at once: each waits for the answer to its
// own request, and one that waits for a key holds nobody up. Whoever reads the socket hands the others their answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/launch/fd_exchange.h"
#include "orthant/launch/passed_fds.h"
#include "orthant/launch/store_protocol.h"

namespace orthant::launch {

class StoreClient : public FdExchange {
 public:
  // `where` names the store in errors. The connection must have been admitted. A server that has many to serve gets
  // `answer_seconds` beyond what a request asks for.
  explicit StoreClient(Fd connection, std::string where, double answer_seconds = 30);

  // All of these block until the server has answered. CommError when the connection is gone, or when nothing comes for
  // some seconds longer than asked for; also when the store refuses what would exceed its bounds, and before a key or
  // value is sent that no store takes.
  void set(std::string_view key, std::string_view value);
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string_view>& values);
  void append(std::string_view key, std::string_view value);
  int64_t add(std::string_view key, int64_t value);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  bool erase(std::string_view key);
  bool check(const std::vector<std::string>& keys);
  int64_t num_keys();

  // Blocks until all keys are there; false, or nothing, after `timeout_seconds`.
  bool wait(const std::vector<std::string>& keys, double timeout_seconds);
  std::optional<std::vector<std::string>> get(const std::vector<std::string>& keys, double timeout_seconds);

  // Only where the connection is a Unix-domain socket.
  void put_fd(const std::string& key, int fd, int num_readers) override;
  std::optional<PassedFd> get_fd(const std::string& key, double timeout_seconds) override;
  // All requests leave before the first answer is awaited.
  std::vector<std::optional<PassedFd>> get_fds(const std::vector<std::string>& keys, double timeout_seconds) override;

  // No answer is waited for longer than `answer_seconds` beyond what a request asks for, from now on.
  void hasten(double answer_seconds) { answer_seconds_ = answer_seconds; }

  const std::string& where() const { return where_; }

 private:
  struct Answer {
    StoreStatus status = StoreStatus::ok;
    std::string body;  // a frame without its length
    std::vector<Fd> fds;
  };

  Answer call(FrameWriter request, uint64_t id, double timeout_seconds = 0, int fd = -1);
  Answer call(StoreCommand command, std::initializer_list<std::string_view> texts);
  Answer wait_for_keys(StoreCommand command, const std::vector<std::string>& keys, double timeout_seconds);
  uint64_t next_id();
  void send(const std::string& frame, int fd, Clock::time_point deadline);
  Answer await(uint64_t id, Clock::time_point deadline);
  void read_until(Clock::time_point deadline, std::unique_lock<std::mutex>& lock);
  void take_frames();
  std::optional<PassedFd> passed_in(Answer answer);
  void add_key(FrameWriter& request, std::string_view key) const;
  void add_value(FrameWriter& request, std::string_view value) const;
  Clock::time_point answer_deadline(double timeout_seconds) const;
  [[noreturn]] void refused(const std::string& why, bool is_descriptor = false) const;
  [[noreturn]] void lost(const std::string& why) const;

  Fd fd_;
  std::string where_;
  std::atomic<double> answer_seconds_;
  std::mutex send_mutex_;  // one frame at a time
  std::mutex mutex_;       // of everything below
  std::condition_variable changed_;
  uint64_t last_id_ = 0;
  bool somebody_reads_ = false;
  std::string lost_;                  // why the connection is of no more use
  std::map<uint64_t, bool> awaited_;  // by request; true: its answer brings descriptors
  std::map<uint64_t, Answer> answers_;
  std::string input_;
  std::deque<Fd> fds_;
};

}  // namespace orthant::launch
