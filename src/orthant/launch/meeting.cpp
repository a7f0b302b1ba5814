#include "orthant/launch/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"
#include "orthant/launch/sockets.h"

namespace orthant::launch {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(5);

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

// The abstract name (leading zero byte) that this user's ranks of the job share. Long keys are hashed to fit.
UnixAddress meeting_address(const std::string& key) {
  std::string name = fmt::format("orthant-{}-{}", getuid(), key);
  UnixAddress meeting;
  if (name.size() + 1 > sizeof meeting.address.sun_path) {
    name = fmt::format("orthant-{}-{:016x}", getuid(), stable_hash(name));
  }
  meeting.address.sun_family = AF_UNIX;
  std::memcpy(meeting.address.sun_path + 1, name.data(), name.size());
  meeting.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return meeting;
}

Fd unix_socket() {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    throw ConfigError(fmt::format("cannot make a socket: {}", std::strerror(errno)), {.remedy = "see ulimit -n"});
  return fd;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

// False when nothing can be read before the deadline.
bool wait_readable(int fd, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd ready{fd, POLLIN, 0};
  return left > 0 && poll(&ready, 1, static_cast<int>(std::min<long long>(left, 600'000))) > 0;
}

// One question (a rank) and one answer (the port) per connection.
void answer_ranks(int listener, const Job& job, double timeout_seconds) {
  const auto deadline = Clock::now() + seconds(timeout_seconds);
  std::set<int> missing;
  for (int rank = 1; rank < job.world_size; ++rank) missing.insert(rank);
  while (!missing.empty()) {
    if (!wait_readable(listener, deadline)) {
      throw CommError(fmt::format("rank 0 waited {} s for ranks {} to start on this host", timeout_seconds,
                                  fmt::join(missing, ", ")),
                      {.remedy = "look for their errors above, or raise --timeout", .rank = 0});
    }
    Fd peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer || !same_user(peer.get())) continue;
    const auto patience = std::min(deadline, Clock::now() + std::chrono::seconds(1));
    std::int32_t rank = -1;
    if (!wait_readable(peer.get(), patience) || recv(peer.get(), &rank, sizeof rank, 0) != sizeof rank) continue;
    if (!missing.contains(rank)) continue;
    const std::int32_t port = job.rendezvous.port;
    if (send(peer.get(), &port, sizeof port, MSG_NOSIGNAL) == sizeof port) missing.erase(rank);
  }
}

// The port, or -1 when rank 0 is not there yet or turned us away.
int ask_rank_zero(const Job& job, Clock::time_point deadline) {
  const auto meeting = meeting_address(job.rendezvous.meeting_key);
  Fd fd = unix_socket();
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&meeting.address), meeting.length) != 0) return -1;
  if (!same_user(fd.get())) return -1;
  const std::int32_t rank = job.rank;
  if (send(fd.get(), &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) return -1;
  std::int32_t port = -1;
  if (!wait_readable(fd.get(), deadline) || recv(fd.get(), &port, sizeof port, 0) != sizeof port) return -1;
  return port;
}

// Rank 0 binds the store's port and tells it; the others ask for it.
void hand_port_around(Job& job, double timeout_seconds) {
  Rendezvous& rendezvous = job.rendezvous;
  rendezvous.host = "127.0.0.1";
  if (job.rank == 0) {
    Fd store = bind_tcp({rendezvous.host, 0});
    start_listening(store.get());  // a rank that is told the port finds somebody there
    rendezvous.port = bound_endpoint(store.get()).port;
    if (job.world_size > 1) {
      const auto meeting = meeting_address(rendezvous.meeting_key);
      Fd listener = unix_socket();
      if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&meeting.address), meeting.length) != 0 ||
          listen(listener.get(), SOMAXCONN) != 0) {
        throw ConfigError(
            fmt::format("another rank 0 of this job ({}) is meeting its ranks on this host: {}", rendezvous.meeting_key,
                        std::strerror(errno)),
            {.remedy = "run one program at a time under a launcher, or give --rendezvous HOST:PORT", .rank = 0});
      }
      answer_ranks(listener.get(), job, timeout_seconds);
    }
    rendezvous.listen_fd = store.release();
    return;
  }
  const auto deadline = Clock::now() + seconds(timeout_seconds);
  for (;;) {
    rendezvous.port = ask_rank_zero(job, deadline);
    if (rendezvous.port > 0) return;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kRetryPause);
  }
  throw CommError(fmt::format("rank {} waited {} s for rank 0 to start on this host", job.rank, timeout_seconds),
                  {.remedy = "look for the error of rank 0, or raise --timeout", .rank = job.rank});
}

// Where rank 0 serves the store when the rendezvous has a fixed port.
std::string store_address(const Job& job, bool address_was_given) {
  if (address_was_given) return job.rendezvous.bind_address;
  const bool one_host = job.world_size == job.local_world_size;
  return one_host ? resolve(job.rendezvous.host) : serving_address(job.rendezvous.host);
}

// The words after the last ')' of /proc/PID/stat on: fields from the third, so [1] is the parent and [19] the start
// time.
std::vector<std::string> stat_fields(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = line.rfind(')');
  std::istringstream words(name_end == std::string::npos ? "" : line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(words), {}};
}

bool has_variable(const std::string& pid, const std::string& name) {
  std::ifstream file("/proc/" + pid + "/environ");
  const std::string separator(1, '\0');
  const std::string environment = separator + std::string((std::istreambuf_iterator<char>(file)), {});
  return environment.find(separator + name + "=") != std::string::npos;
}

// The number and the start time of the process that started this host's ranks; no time when it cannot be read.
std::pair<std::string, std::string> launcher_process(const std::string& rank_variable) {
  std::string pid = std::to_string(getppid());
  for (;;) {
    const auto fields = stat_fields(pid);
    if (fields.size() < 20) return {pid, ""};
    const auto& parent = fields[1];
    if (rank_variable.empty() || parent == "0" || parent == "1" || !has_variable(pid, rank_variable)) {
      return {pid, fields[19]};
    }
    pid = parent;
  }
}

}  // namespace

void meet(Job& job, double timeout_seconds) {
  Rendezvous& rendezvous = job.rendezvous;
  if (job.world_size == 1) {  // nobody to meet
    if (rendezvous.bind_address.empty()) rendezvous.bind_address = "127.0.0.1";
    return;
  }
  if (!rendezvous.meeting_key.empty()) return hand_port_around(job, timeout_seconds);
  const bool address_was_given = !rendezvous.bind_address.empty() && job.world_size != job.local_world_size;
  if (rendezvous.bind_address.empty()) rendezvous.bind_address = outside_address(rendezvous.host);
  if (job.rank != 0 || rendezvous.served_by_launcher || rendezvous.listen_fd >= 0) return;
  Fd store = bind_tcp({store_address(job, address_was_given), rendezvous.port});
  start_listening(store.get());  // from here on nobody else can take the agreed port
  rendezvous.listen_fd = store.release();
}

std::optional<Job> join_launcher(const Environment& environment, const DetectOptions& options, double timeout_seconds) {
  auto job = detect(environment, options);
  if (job) meet(*job, timeout_seconds);
  return job;
}

std::string launcher_process_id(const std::string& rank_variable) {
  const auto [pid, start_ticks] = launcher_process(rank_variable);
  return start_ticks.empty() ? pid : pid + "." + start_ticks;
}

double launcher_age_seconds(const std::string& rank_variable) {
  const auto start_ticks = launcher_process(rank_variable).second;
  std::ifstream file("/proc/uptime");
  double up_seconds = 0;
  if (start_ticks.empty() || !(file >> up_seconds)) return 0;
  return up_seconds - std::stod(start_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace orthant::launch
