#include "orthant/launch/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Addresses of host:port; ConfigError when the name is unknown.
AddressList look_up(const Endpoint& endpoint, int socket_type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const auto port = std::to_string(endpoint.port);
  if (const int code = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found); code != 0) {
    throw ConfigError(fmt::format("host '{}' is unknown: {}", endpoint.host, gai_strerror(code)),
                      {.remedy = "give a host name that resolves here, or a numeric address"});
  }
  return {found, freeaddrinfo};
}

// The one address that both who listens and who connects use: the first of IPv4, as the ranks' transports prefer.
const addrinfo* preferred(const addrinfo* list) {
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_family == AF_INET) return a;
  }
  return list;
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = {};
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

Endpoint endpoint_of(const sockaddr_storage& storage, socklen_t length) {
  const auto port = storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                                  : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port;
  return {numeric_host(reinterpret_cast<const sockaddr*>(&storage), length), ntohs(port)};
}

Fd new_socket(int family, int type) {
  Fd fd(socket(family, type | SOCK_CLOEXEC, 0));
  if (!fd)
    throw ConfigError(fmt::format("cannot make a socket: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
  return fd;
}

[[noreturn]] void throw_bind_error(const Endpoint& endpoint, int error) {
  const auto where = endpoint_text(endpoint);
  if (error == EADDRINUSE) {
    throw ConfigError(fmt::format("port {} on {} is in use by another process", endpoint.port, endpoint.host),
                      {.remedy = "choose another port, or end the job that still holds it"});
  }
  if (error == EADDRNOTAVAIL) {
    throw ConfigError(fmt::format("cannot listen on {}: {} is not an address of this host", where, endpoint.host),
                      {.remedy = "start this rank or launcher on that host, or name a local address with --bind"});
  }
  throw ConfigError(fmt::format("cannot listen on {}: {}", where, std::strerror(error)),
                    {.remedy = error == EACCES ? "ports below 1024 are the system's: choose one from 1024 to 65535"
                                               : "choose another port or address"});
}

// 0 when connected before the deadline, else an errno value.
int connect_until(int fd, const addrinfo& address, Clock::time_point deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_until(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

double left_until(Clock::time_point deadline) {
  return std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
}

int poll_milliseconds(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 600'000));
}

bool wait_until(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd ready{fd, events, 0};
    if (poll(&ready, 1, poll_milliseconds(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Endpoint parse_endpoint(const std::string& text, const std::string& what) {
  const auto fail = [&](const std::string& why) -> ConfigError {
    return ConfigError(fmt::format("{} is '{}': {}", what, text, why),
                       {.remedy = "write HOST:PORT, for example node01:29400 or [fe80::1]:29400"});
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) throw fail("no port");
  std::string host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string::npos) {
    throw fail("an IPv6 address needs brackets");
  }
  if (host.empty()) throw fail("no host");
  int port = -1;
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, port);
  if (error != std::errc{} || rest != end || port < 0 || port > 65535) throw fail("the port must be 0 to 65535");
  return {host, port};
}

std::string endpoint_text(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", ipv6 ? "[" : "", endpoint.host, ipv6 ? "]" : "", endpoint.port);
}

std::string resolve(const std::string& host) {
  const auto list = look_up({host, 0}, SOCK_STREAM);
  const auto* address = preferred(list.get());
  return numeric_host(address->ai_addr, address->ai_addrlen);
}

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

Fd bind_tcp(const Endpoint& endpoint) {
  const auto list = look_up(endpoint, SOCK_STREAM);
  const auto* address = preferred(list.get());
  Fd fd = new_socket(address->ai_family, SOCK_STREAM);
  if (endpoint.port != 0) {
    // A fixed port must be usable again while connections of the former job are in TIME_WAIT.
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0) throw_bind_error(endpoint, errno);
  return fd;
}

void start_listening(int fd) {
  if (listen(fd, SOMAXCONN) != 0) throw_bind_error(bound_endpoint(fd), errno);
}

Endpoint bound_endpoint(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw InternalError(fmt::format("getsockname on descriptor {}: {}", fd, std::strerror(errno)));
  }
  return endpoint_of(storage, length);
}

Endpoint peer_endpoint(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {"?", 0};
  return endpoint_of(storage, length);
}

Accepted accept_tcp(int listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  Accepted accepted;
  accepted.fd.reset(accept4(listener, address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (accepted.fd) accepted.address = numeric_host(address, length);
  return accepted;
}

bool lacks_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void watch_peer(int fd) {
  const int on = 1, idle_seconds = 5, interval_seconds = 5, probes = 3;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Fd connect_tcp(const Endpoint& endpoint, double timeout_seconds) {
  const auto deadline = Clock::now() + seconds(timeout_seconds);
  std::string last_error;
  do {
    try {
      const auto list = look_up(endpoint, SOCK_STREAM);
      const auto* address = preferred(list.get());
      Fd fd = new_socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK);
      const int error = connect_until(fd.get(), *address, deadline);
      if (error == 0) return fd;
      last_error = std::strerror(error);
    } catch (const ConfigError& error) {
      last_error = error.message();  // a name that is not known yet: pods and nodes may register late
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  throw CommError(
      fmt::format("nobody answered at {} within {:.6g} s: {}", endpoint_text(endpoint), timeout_seconds, last_error),
      {.remedy = "check that the host and port are right, reachable, and that the other side runs"});
}

std::string address_towards(const std::string& host) {
  const auto list = look_up({host, 9}, SOCK_DGRAM);
  const auto* address = preferred(list.get());
  Fd fd = new_socket(address->ai_family, SOCK_DGRAM);
  if (connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0) {
    throw ConfigError(fmt::format("no route to host '{}': {}", host, std::strerror(errno)),
                      {.remedy = "name the address to listen on with --bind"});
  }
  return bound_endpoint(fd.get()).host;
}

std::string outside_address(const std::string& host) {
  auto direct = address_towards(host);
  if (!is_loopback(direct)) return direct;
  // Many hosts resolve their own name to loopback. Any foreign address shows the default route; this one is reserved
  // for documentation (RFC 5737) and no packet is sent.
  try {
    return address_towards("192.0.2.1");
  } catch (const ConfigError&) {
    throw ConfigError(
        fmt::format("'{}' is a loopback address here and this host has no default route, so ranks on other "
                    "hosts could not reach this one",
                    host),
        {.remedy = "name the address to listen on with --bind"});
  }
}

std::string transport_address(const std::string& host) {
  return is_loopback(host) ? resolve(host) : outside_address(host);
}

std::string serving_address(const std::string& host) {
  const auto named = resolve(host);
  return is_loopback(host) || !is_loopback(named) ? named : outside_address(host);
}

}  // namespace orthant::launch
