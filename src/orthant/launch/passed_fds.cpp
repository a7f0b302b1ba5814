#include "orthant/launch/passed_fds.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "orthant/base/error.h"

namespace orthant::launch {

std::pair<Fd, Fd> stream_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw ConfigError(fmt::format("cannot make a socket for a rank: {}", std::strerror(errno)),
                      {.remedy = "raise ulimit -n, or start fewer ranks"});
  }
  std::pair<Fd, Fd> pair{Fd(ends[0]), Fd(ends[1])};
  ask_for_credentials(ends[0]);
  return pair;
}

void ask_for_credentials(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
}

std::optional<Credentials> peer_of(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  int domain = 0;
  socklen_t domain_length = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) != 0 || domain != AF_UNIX) return std::nullopt;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return Credentials{peer.pid, peer.uid};
}

std::string peer_text(int fd) {
  if (const auto peer = peer_of(fd)) return fmt::format("process {} of user {}", peer->pid, peer->uid);
  return endpoint_text(peer_endpoint(fd));
}

ssize_t send_with_fds(int socket, std::string_view bytes, const std::vector<int>& fds) {
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostPassedFds)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Received receive_with_fds(int socket, char* bytes, size_t most) {
  iovec piece{bytes, most};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostPassedFds) + CMSG_SPACE(sizeof(ucred))];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Received received;
  received.num_bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received.num_bytes < 0) return received;
  received.cut = (message.msg_flags & MSG_CTRUNC) != 0;
  for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) {
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        received.fds.emplace_back(fd);
      }
    } else if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      received.sender = Credentials{sender.pid, sender.uid};
    }
  }
  return received;
}

Fd open_pidfd(pid_t pid) {
  return Fd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
}

}  // namespace orthant::launch
