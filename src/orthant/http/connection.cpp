#include "orthant/http/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace orthant::http {

bool Connection::receive() {
  constexpr std::size_t kMostAhead = std::size_t{1} << 16;  // of requests behind the one that is answered
  std::array<char, 16384> buffer;
  while (in.size() < kMostAhead) {
    const auto count = recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) {
      if (!lingers) in.append(buffer.data(), static_cast<std::size_t>(count));
      if (static_cast<std::size_t>(count) < buffer.size()) return true;
      if (lingers) return true;
      continue;
    }
    if (count == 0) {
      end_seen = true;
      return true;
    }
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return true;
}

bool Connection::send() {
  while (unsent() > 0) {
    const auto count = ::send(fd.get(), out.data() + out_at, unsent(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      out_at += static_cast<std::size_t>(count);
      sent_at = launch::Clock::now();
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  out.clear();
  out_at = 0;
  return true;
}

void Connection::queue(std::string_view bytes) {
  if (unsent() == 0) sent_at = launch::Clock::now();
  if (out_at > 0) {
    out.erase(0, out_at);
    out_at = 0;
  }
  out += bytes;
}

}  // namespace orthant::http
