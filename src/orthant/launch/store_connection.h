// One connection of the store's server: bytes that have arrived and wait to become frames, answers that wait to be
// sent, descriptors beside both. Never blocks; whatever its peer does, it holds a bounded amount of memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orthant/launch/passed_fds.h"
#include "orthant/launch/store_protocol.h"

namespace orthant::launch {

// What the other end of a new connection must show before any frame of it is read. One object per connection.
class Admission {
 public:
  enum class Verdict { undecided, admitted, refused };

  virtual ~Admission() = default;

  // Called at once with nothing and again whenever bytes have arrived. Takes what it understands off the front of
  // `input`, appends its answer to `output`, and says why in `reason` when it refuses. Must not block or throw.
  virtual Verdict talk(std::string& input, std::string& output, std::string& reason) = 0;
};

class StoreConnection {
 public:
  static constexpr size_t kMostUnproved = 1024;  // bytes a stranger may have waiting

  // `expected_pid` 0: any process of this user. On sockets that carry no credentials nothing is expected.
  StoreConnection(uint64_t id, Fd fd, pid_t expected_pid, std::unique_ptr<Admission> admission,
                  const StoreLimits& limits);

  uint64_t id() const { return id_; }
  int fd() const { return fd_.get(); }
  bool wants_to_write() const { return !output_.empty(); }
  Clock::time_point opened_at() const { return opened_at_; }

  // Takes in what has arrived. False at the end of the stream. BadFrame when it came from somebody else.
  bool receive();

  // Goes on with the admission. True once frames may be read; BadFrame with the reason when it is refused.
  bool admit();

  // The body of the next complete frame, valid until the next call; nothing when there is none. BadFrame.
  std::optional<std::string_view> next_frame();

  // The first descriptor that came with the frames so far. BadFrame when there is none.
  Fd take_fd();
  // Of the process that sent last; nothing where the socket carries none.
  const std::optional<Credentials>& sender() const { return sender_; }

  // Queues an answer. Descriptors travel with its first byte. BadFrame when the peer does not read its answers.
  void send(std::string frame, std::vector<Fd> fds = {});
  // Sends what fits. False when the peer is gone.
  bool flush();

  size_t num_waits = 0;      // requests that the server holds back
  size_t waiting_bytes = 0;  // of the keys that they wait for

 private:
  struct Answer {
    std::string bytes;
    std::vector<Fd> fds;
    size_t sent = 0;
  };

  void check_sender(const Received& received);

  uint64_t id_;
  Fd fd_;
  pid_t expected_pid_;
  bool carries_credentials_;
  std::unique_ptr<Admission> admission_;
  const StoreLimits& limits_;
  Clock::time_point opened_at_ = Clock::now();
  std::string input_;
  size_t read_ = 0;  // bytes at the front of input_ that are done with
  std::deque<Fd> fds_;
  std::optional<Credentials> sender_;
  std::deque<Answer> output_;
  size_t output_bytes_ = 0;
};

}  // namespace orthant::launch
