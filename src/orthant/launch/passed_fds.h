// Descriptors and the sender's credentials beside the bytes of a Unix-domain socket, and who is at its other end. The
// kernel fills the credentials in: a process cannot claim another's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
};

// What one receive brought.
struct Received {
  ssize_t num_bytes = 0;  // as of recvmsg: 0 at the end of the stream, -1 with errno
  std::vector<Fd> fds;    // close-on-exec
  std::optional<Credentials> sender;
  bool cut = false;  // more came beside the bytes than anybody sends
};

inline constexpr size_t kMostPassedFds = 4;

// Two ends of a stream, both close-on-exec; messages that arrive at the first carry credentials. ConfigError when the
// system refuses.
std::pair<Fd, Fd> stream_pair();

// From now on what arrives at `fd` carries its sender's credentials. Local.
void ask_for_credentials(int fd);

// Who called connect or listen at the other end of a Unix-domain socket; nothing for other sockets. Local.
std::optional<Credentials> peer_of(int fd);

// "process P of user U" or "ADDRESS:PORT", for messages. Local.
std::string peer_text(int fd);

// Neither blocks nor raises SIGPIPE; as sendmsg and recvmsg otherwise. Descriptors go with the first byte.
ssize_t send_with_fds(int socket, std::string_view bytes, const std::vector<int>& fds);
Received receive_with_fds(int socket, char* bytes, size_t most);

// Readable when the process has ended; empty when there is no such process.
Fd open_pidfd(pid_t pid);

}  // namespace orthant::launch
