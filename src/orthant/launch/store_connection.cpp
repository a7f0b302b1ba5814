#include "orthant/launch/store_connection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace orthant::launch {
namespace {

bool try_again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

StoreConnection::StoreConnection(uint64_t id, Fd fd, pid_t expected_pid, std::unique_ptr<Admission> admission,
                                 const StoreLimits& limits)
    : id_(id),
      fd_(std::move(fd)),
      expected_pid_(expected_pid),
      carries_credentials_(peer_of(fd_.get()).has_value()),
      admission_(std::move(admission)),
      limits_(limits) {
  if (carries_credentials_) ask_for_credentials(fd_.get());
}

void StoreConnection::check_sender(const Received& received) {
  if (received.cut) throw BadFrame("it brought descriptors for which there is no room here (see ulimit -n)");
  if (!carries_credentials_ || received.num_bytes == 0) return;
  if (!received.sender) throw BadFrame("bytes without credentials");
  sender_ = received.sender;
  if (sender_->uid != getuid() && sender_->uid != geteuid()) {
    throw BadFrame(fmt::format("bytes of process {} of user {}", sender_->pid, sender_->uid));
  }
  if (expected_pid_ != 0 && sender_->pid != expected_pid_) {
    throw BadFrame(fmt::format("bytes of process {} on the connection of process {}", sender_->pid, expected_pid_));
  }
}

bool StoreConnection::receive() {
  if (read_ == input_.size()) {
    input_.clear();
    read_ = 0;
  } else if (read_ > input_.size() / 2) {
    input_.erase(0, read_);
    read_ = 0;
  }
  const size_t before = input_.size();
  input_.resize(before + kReadBytes);
  auto received = receive_with_fds(fd_.get(), input_.data() + before, kReadBytes);
  const int error = errno;
  input_.resize(before + static_cast<size_t>(std::max<ssize_t>(received.num_bytes, 0)));
  if (received.num_bytes < 0) return try_again(error);
  check_sender(received);
  for (auto& fd : received.fds) fds_.push_back(std::move(fd));
  if (fds_.size() > kMostPassedFds) throw BadFrame("descriptors that no frame takes");
  return received.num_bytes != 0;
}

bool StoreConnection::admit() {
  if (admission_ == nullptr) return true;
  if (input_.size() > kMostUnproved || !fds_.empty()) throw BadFrame("too much before it proved itself");
  std::string answer, reason;
  const auto verdict = admission_->talk(input_, answer, reason);
  if (!answer.empty()) send(std::move(answer));
  if (verdict == Admission::Verdict::refused) {
    flush();
    throw BadFrame(reason);
  }
  if (verdict == Admission::Verdict::undecided) return false;
  admission_.reset();
  return true;
}

std::optional<std::string_view> StoreConnection::next_frame() {
  const auto body = first_frame(std::string_view(input_).substr(read_), limits_.frame_bytes);
  if (body) read_ += kFrameLengthBytes + body->size();
  if (!body && read_ == input_.size() && !fds_.empty()) throw BadFrame("a descriptor that no frame takes");
  return body;
}

Fd StoreConnection::take_fd() {
  if (fds_.empty()) throw BadFrame("a frame without its descriptor");
  Fd fd = std::move(fds_.front());
  fds_.pop_front();
  return fd;
}

void StoreConnection::send(std::string frame, std::vector<Fd> fds) {
  output_bytes_ += frame.size();
  if (output_bytes_ > 2 * limits_.frame_bytes) throw BadFrame("it does not read its answers");
  output_.push_back({std::move(frame), std::move(fds)});
}

bool StoreConnection::flush() {
  while (!output_.empty()) {
    auto& answer = output_.front();
    std::vector<int> numbers;
    if (answer.sent == 0) {
      for (const auto& fd : answer.fds) numbers.push_back(fd.get());
    }
    const auto sent = send_with_fds(fd_.get(), std::string_view(answer.bytes).substr(answer.sent), numbers);
    if (sent < 0) return try_again(errno);
    answer.sent += static_cast<size_t>(sent);
    if (answer.sent < answer.bytes.size()) continue;
    output_bytes_ -= answer.bytes.size();
    output_.pop_front();
  }
  return true;
}

}  // namespace orthant::launch
