#include "orthant/serve/link/frame_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace orthant {
namespace {

constexpr double kLookSeconds = 0.2;

}  // namespace

FrameSocket::FrameSocket(launch::Fd fd) : fd_(std::move(fd)), writer_([this] { write_queued(); }) {}

FrameSocket::~FrameSocket() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  writer_.join();
}

void FrameSocket::queue(const LinkFrame& frame) {
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    queued_ += frame_bytes(frame);
  }
  wake_.notify_all();
}

void FrameSocket::shut() {
  shutdown(fd_.get(), SHUT_RDWR);
}

void FrameSocket::write_queued() {
  for (;;) {
    std::string bytes;
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return leaving_ || !queued_.empty(); });
      bytes.swap(queued_);
      last = leaving_;
    }
    const auto deadline = launch::Clock::now() + launch::seconds(1);
    for (std::size_t at = 0; at < bytes.size();) {
      const auto count = send(fd_.get(), bytes.data() + at, bytes.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) {
        at += static_cast<std::size_t>(count);
      } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        launch::wait_until(fd_.get(), POLLOUT, launch::Clock::now() + launch::seconds(kLookSeconds));
        const std::lock_guard lock(mutex_);
        if (leaving_ && launch::Clock::now() > deadline) return;
      } else {
        break;  // the other end is gone: what is queued is for nobody
      }
    }
    if (last) return;
  }
}

void FrameSocket::read(const std::function<bool(const LinkFrame&)>& take, const std::function<bool()>& look) {
  FrameReader reader;
  std::array<char, 65536> buffer;
  auto next_look = launch::Clock::now();
  for (;;) {
    const bool ready = launch::wait_until(fd_.get(), POLLIN, launch::Clock::now() + launch::seconds(kLookSeconds));
    if (look && launch::Clock::now() >= next_look) {
      if (!look()) return;
      next_look = launch::Clock::now() + launch::seconds(kLookSeconds);
    }
    if (!ready) continue;
    const auto count = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return;
    reader.feed({buffer.data(), static_cast<std::size_t>(count)});
    while (auto frame = reader.next()) {
      if (!take(*frame)) return;
    }
  }
}

}  // namespace orthant
