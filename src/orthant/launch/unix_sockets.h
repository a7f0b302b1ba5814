// Unix-domain sockets by an abstract name: nothing lies in the file system, and the name is free again when the last
// process that holds the socket has closed it. Anybody on the host can take a name or connect to it, so both sides look
// at whom they have before they say a word.
#pragma once

#include <string>
#include <vector>

#include "orthant/launch/passed_fds.h"

namespace orthant::launch {

inline constexpr size_t kLongestUnixName = 100;

// All sockets ask for credentials before they have a peer: whoever accepts inherits that, and what is sent before the
// other end is accepted carries them too.

// A stream socket that listens at the name; empty with errno when it is taken. ConfigError when there is no socket to
// be had. Local.
Fd listen_unix(const std::string& name);

// A connection to whoever listens there; empty with errno. Never blocks for long. ConfigError as above.
Fd connect_unix(const std::string& name);

// The same, trying again until the deadline while too many wait there to be accepted. Blocks.
Fd connect_unix_until(const std::string& name, Clock::time_point deadline);

// Names in use on this host that begin so. Local.
std::vector<std::string> unix_names(const std::string& prefix);

// Whether the other end was opened by a process of this very user. Local.
bool is_own_user(const std::optional<Credentials>& peer);

// 128 random bits of the system as 32 hexadecimal digits. Local.
std::string random_name();

}  // namespace orthant::launch
