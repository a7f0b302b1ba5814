// File descriptors that close themselves and the few socket calls the launcher needs: bind, connect, and which address
// of this host leads to another. Nothing here keeps state; all sockets are close-on-exec.
#pragma once

#include <chrono>
#include <string>
#include <utility>

namespace orthant::launch {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

// Seconds until then, never fewer than 0. Local.
double left_until(Clock::time_point deadline);

// The same in whole milliseconds, rounded up, as poll() wants them; ten minutes at most. Local.
int poll_milliseconds(Clock::time_point deadline);

// Owns one file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct Endpoint {
  std::string host;
  int port = 0;
};

// Blocks until `fd` has one of `events` or is broken; false when the deadline passes first. Signals do not end it.
bool wait_until(int fd, short events, Clock::time_point deadline);

// "HOST:PORT" or "[IPV6]:PORT"; `what` names the flag or variable in the ConfigError. Local.
Endpoint parse_endpoint(const std::string& text, const std::string& what);

// "host:port", with brackets around an IPv6 address. Local.
std::string endpoint_text(const Endpoint& endpoint);

// The numeric address a host name stands for; ConfigError when there is none. May block in the resolver.
std::string resolve(const std::string& host);

// True for 127.0.0.0/8, ::1 and the name localhost. Local.
bool is_loopback(const std::string& host);

// A TCP socket bound to host:port, not listening yet; port 0 lets the system choose. ConfigError when the port is taken
// or the address is not one of this host. Local.
Fd bind_tcp(const Endpoint& endpoint);

// Makes a bound socket accept connections; ConfigError when another socket listens there already. Local.
void start_listening(int fd);

// The address and port a socket is bound to. Local.
Endpoint bound_endpoint(int fd);

// The address and port at the other end of a connected socket; "?" when it is gone. Local.
Endpoint peer_endpoint(int fd);

// The next connection of a listening socket and the numeric address it comes from; no connection, with errno set, when
// there is none. Never blocks on a non-blocking listener. The connection is non-blocking.
struct Accepted {
  Fd fd;
  std::string address;
};
Accepted accept_tcp(int listener);

inline constexpr int kMostAcceptedAtOnce = 64;  // of one listener; then those who are there are heard
// Before the next try when descriptors have run out: the listener stays readable.
inline constexpr auto kNoDescriptorPause = std::chrono::milliseconds(100);

// Whether an accept failed, with this errno, for want of descriptors or memory of this process or host. Local.
bool lacks_descriptors(int error);

// Small messages leave at once, and a peer that loses power, and sends nothing more, is noticed after some seconds.
// Only for TCP; nothing happens to other sockets. Local.
void watch_peer(int fd);

// Connects, trying again until somebody listens; CommError after `timeout_seconds`. Of a name's addresses only the one
// is tried that bind_tcp() takes: whoever listens on another one is not asked. Blocks. The socket is non-blocking.
Fd connect_tcp(const Endpoint& endpoint, double timeout_seconds);

// The numeric address of this host from which packets to `host` leave; nothing is sent. May block in the resolver.
std::string address_towards(const std::string& host);

// An address of this host that other hosts can reach: the one towards `host`, or, when `host` is this very machine
// under a loopback name, the one of the default route. ConfigError when there is none.
std::string outside_address(const std::string& host);

// The address of this host that ranks of a job that meets at `host` listen on: loopback when they meet there, since all
// of them are on this host then, else outside_address().
std::string transport_address(const std::string& host);

// The address to listen on so that others reach this host by the name `host`: what the name resolves to, but an outside
// address when a name other than localhost resolves to loopback here. May block in the resolver.
std::string serving_address(const std::string& host);

}  // namespace orthant::launch
