// A store served by a thread of the test and connections to it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "orthant/launch/store_client.h"
#include "orthant/launch/store_server.h"

namespace orthant::launch {

// Resident bytes of this process.
inline size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class StoreTest : public ::testing::Test {
 protected:
  // The rank's end of a new connection; before start() only.
  Fd raw_connection(pid_t pid = 0) {
    auto [server_end, client_end] = stream_pair();
    server_.add(std::move(server_end), pid);
    return std::move(client_end);
  }
  std::shared_ptr<StoreClient> client() { return std::make_shared<StoreClient>(raw_connection(), "test"); }

  static void write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // True once the server has closed its end.
  static bool is_closed(int fd) {
    char byte;
    for (;;) {
      pollfd ready{fd, POLLIN, 0};
      if (poll(&ready, 1, 5000) <= 0) return false;
      const auto got = recv(fd, &byte, 1, 0);
      if (got <= 0) return true;
    }
  }

  std::vector<std::string> said_;
  StoreServer server_{[this](const std::string& text) { said_.push_back(text); }};
};

}  // namespace orthant::launch
