#include "orthant/launch/unix_sockets.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/launch/secret.h"

namespace orthant::launch {
namespace {

static_assert(kLongestUnixName + 1 <= sizeof(sockaddr_un::sun_path));

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit Address(const std::string& name) {
    if (name.empty() || name.size() > kLongestUnixName) {
      throw InternalError(fmt::format("a socket name of {} bytes", name.size()));
    }
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // the zero byte in front makes it abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Fd stream_socket() {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    throw ConfigError(fmt::format("cannot make a socket: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
  ask_for_credentials(fd.get());
  return fd;
}

// Closing must not change what the caller is to read in errno.
Fd failed(Fd fd) {
  const int error = errno;
  fd.reset();
  errno = error;
  return {};
}

}  // namespace

Fd listen_unix(const std::string& name) {
  const Address address(name);
  Fd fd = stream_socket();
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return failed(std::move(fd));
  }
  return fd;
}

Fd connect_unix(const std::string& name) {
  const Address address(name);
  Fd fd = stream_socket();
  if (connect(fd.get(), address.get(), address.length) != 0) return failed(std::move(fd));
  return fd;
}

Fd connect_unix_until(const std::string& name, Clock::time_point deadline) {
  for (;;) {
    Fd fd = connect_unix(name);
    if (fd || (errno != EAGAIN && errno != EINTR) || Clock::now() >= deadline) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::vector<std::string> unix_names(const std::string& prefix) {
  std::ifstream file("/proc/net/unix");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find(" @" + prefix);
    if (at == std::string::npos) continue;
    auto name = line.substr(at + 2);
    if (name.size() <= kLongestUnixName) names.push_back(std::move(name));
  }
  return names;
}

bool is_own_user(const std::optional<Credentials>& peer) {
  return peer && peer->uid == geteuid();
}

std::string random_name() {
  std::array<std::uint64_t, 2> bits{};
  fill_random(std::as_writable_bytes(std::span(bits)));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace orthant::launch
