// A client of a server on this host that writes bytes and takes what comes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "orthant/launch/sockets.h"

namespace orthant::test {

// One connection.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  void send(std::string_view bytes) const {
    [[maybe_unused]] const auto count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void shut() const { shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

  // Until the text has come, or the connection has ended; 20 s at most.
  std::string read_until(const std::string& text) {
    const auto deadline = launch::Clock::now() + std::chrono::seconds(20);
    while (text.empty() || in_.find(text) == std::string::npos) {
      char buffer[4096];
      if (!launch::wait_until(fd_.get(), POLLIN, deadline)) return in_ + " (no more in 20 s)";
      const auto count = recv(fd_.get(), buffer, sizeof buffer, 0);
      if (count <= 0) break;
      in_.append(buffer, static_cast<std::size_t>(count));
    }
    return in_;
  }
  std::string read_all() { return read_until(""); }

 private:
  launch::Fd fd_;
  std::string in_;
};

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

struct Response {
  int status = 0;
  std::string head;
  std::string body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
};

inline Response response_of(const std::string& text) {
  const auto end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return {0, text, ""};
  return {std::atoi(text.c_str() + 9), text.substr(0, end), text.substr(end + 4)};
}

}  // namespace orthant::test
