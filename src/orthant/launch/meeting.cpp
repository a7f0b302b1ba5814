#include "orthant/launch/meeting.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
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
#include "orthant/base/log.h"
#include "orthant/base/printable.h"
#include "orthant/base/stable_hash.h"
#include "orthant/launch/sockets.h"
#include "orthant/launch/store_join.h"
#include "orthant/launch/store_server.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::launch {
namespace {

// Note [Names that others may take]
// The meeting's name follows from what all ranks of the job know, so anybody else on the host may guess and take it. A
// rank believes only a socket that a process of its own user listens on. Where another user holds the name, rank 0 adds
// a random ending, and the others look through all names that begin alike: whoever takes names is named in a warning
// and keeps nobody from meeting.

constexpr auto kRetryPause = std::chrono::milliseconds(5);
constexpr auto kLookAround = std::chrono::milliseconds(50);

// What a rank says first, and rank 0's answer.
struct RankHello {
  std::int32_t rank;
  std::int32_t world_size;
};
constexpr char kWelcome = 'y';
constexpr char kRefused = 'n';  // the reason follows, up to the end of the connection
constexpr std::size_t kLongestReason = 256;

// The name that this user's ranks of the job share. Long keys are hashed to fit; an ending must fit behind.
std::string meeting_name(const std::string& key) {
  std::string name = fmt::format("orthant-{}-{}", geteuid(), key);
  const bool plain = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
  if (!plain || name.size() + 33 > kLongestUnixName) {
    name = fmt::format("orthant-{}-{:016x}", geteuid(), stable_hash(name));
  }
  return name;
}

std::string impostor_text(const std::string& name, const std::optional<Credentials>& holder) {
  const auto who = holder ? fmt::format("process {} of user {}", holder->pid, holder->uid) : "somebody";
  return fmt::format("{} listens at the meeting place of this job's ranks ({}): it is not believed", who, name);
}

// Rank 0's socket: at the meeting's name, or behind it when that belongs to somebody else.
Fd open_meeting(const Job& job) {
  const auto name = meeting_name(job.rendezvous.meeting_key);
  if (Fd fd = listen_unix(name)) return fd;
  const std::string reason = std::strerror(errno);
  const Fd probe = connect_unix(name);
  const auto holder = probe ? peer_of(probe.get()) : std::nullopt;
  if (is_own_user(holder)) {
    throw ConfigError(
        fmt::format("another rank 0 of this job ({}) is meeting its ranks on this host: {}", job.rendezvous.meeting_key,
                    reason),
        {.remedy = "run one program at a time under a launcher, or give --rendezvous HOST:PORT", .rank = 0});
  }
  Log({.rank = 0}).warn(impostor_text(name, holder));
  if (Fd fd = listen_unix(name + "-" + random_name())) return fd;
  throw ConfigError(fmt::format("no place to meet on this host: {}", std::strerror(errno)), {.rank = 0});
}

// Lets every rank in once.
class RankAdmission : public Admission {
 public:
  RankAdmission(std::shared_ptr<std::set<int>> missing, int world_size)
      : missing_(std::move(missing)), world_size_(world_size) {}

  Verdict talk(std::string& input, std::string& output, std::string& reason) override {
    RankHello hello{};
    if (input.size() < sizeof hello) return Verdict::undecided;
    std::memcpy(&hello, input.data(), sizeof hello);
    input.erase(0, sizeof hello);
    if (hello.world_size != world_size_) {
      reason = fmt::format("rank {} is of a world of {} ranks, rank 0 of one of {}", hello.rank, hello.world_size,
                           world_size_);
    } else if (hello.rank < 1 || hello.rank >= world_size_) {
      reason = fmt::format("rank {} is not between 1 and {}", hello.rank, world_size_ - 1);
    } else if (missing_->erase(hello.rank) == 0) {
      reason = fmt::format("a rank {} has come before", hello.rank);
    }
    output += reason.empty() ? std::string(1, kWelcome) : kRefused + reason;
    return reason.empty() ? Verdict::admitted : Verdict::refused;
  }

 private:
  std::shared_ptr<std::set<int>> missing_;
  int world_size_;
};

// A connection to a process of this user that listens there; empty when there is none. Somebody else is told in
// `impostor`.
Fd try_name(const std::string& name, std::string& impostor) {
  Fd fd = connect_unix(name);
  if (!fd) return {};
  const auto holder = peer_of(fd.get());
  if (is_own_user(holder)) return fd;
  impostor = impostor_text(name, holder);
  return {};
}

Fd find_rank_zero(const Job& job, Clock::time_point deadline, double timeout_seconds) {
  const auto name = meeting_name(job.rendezvous.meeting_key);
  std::string impostor;
  auto look_around_at = Clock::now();
  do {
    const bool was_known = !impostor.empty();
    if (Fd fd = try_name(name, impostor)) return fd;
    if (!impostor.empty() && !was_known) Log({.rank = job.rank}).warn(impostor);
    // Whoever kept rank 0 from the name may have left since, or may answer nobody.
    if (Clock::now() >= look_around_at) {
      look_around_at = Clock::now() + kLookAround;
      std::string ignored;
      for (const auto& other : unix_names(name + "-")) {
        if (Fd fd = try_name(other, ignored)) return fd;
      }
    }
    std::this_thread::sleep_for(kRetryPause);
  } while (Clock::now() < deadline);
  throw CommError(fmt::format("rank {} waited {:.6g} s for rank 0 to start on this host{}{}", job.rank, timeout_seconds,
                              impostor.empty() ? "" : "; ", impostor),
                  {.remedy = "look for the error of rank 0, or raise --timeout", .rank = job.rank});
}

// What rank 0 said to a rank that asked: neither when it is gone, or says nothing until the deadline.
struct Reception {
  bool is_in = false;
  std::string refusal;
};

Reception ask_to_enter(const Fd& fd, const Job& job, Clock::time_point deadline) {
  const RankHello hello{job.rank, job.world_size};
  if (!fd || send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return {};
  std::string said;
  char byte = 0;
  while (said.size() <= kLongestReason && wait_until(fd.get(), POLLIN, deadline)) {
    if (recv(fd.get(), &byte, 1, 0) != 1) break;
    if (said.empty() && byte == kWelcome) return {.is_in = true, .refusal = ""};
    said += byte;
  }
  return said.starts_with(kRefused) ? Reception{false, printable(said.substr(1))} : Reception{};
}

// Where rank 0 serves the store of a job on several hosts.
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

void meet(Job& job, double timeout_seconds, const TokenSource& tokens) {
  Rendezvous& rendezvous = job.rendezvous;
  if (job.world_size == 1) {  // nobody to meet
    if (rendezvous.bind_address.empty()) rendezvous.bind_address = "127.0.0.1";
    return;
  }
  const bool one_host = job.world_size == job.local_world_size;
  if (rendezvous.store_fd >= 0 || !rendezvous.meeting_key.empty()) {
    if (rendezvous.bind_address.empty()) rendezvous.bind_address = transport_address(rendezvous.host);
    if (rendezvous.store_fd >= 0) return;
    if (job.rank == 0) {
      rendezvous.listen_fd = open_meeting(job).release();
    } else {
      const auto deadline = Clock::now() + seconds(timeout_seconds);
      rendezvous.store_fd = find_rank_zero(job, deadline, timeout_seconds).release();
    }
    return;
  }
  if (!one_host && !rendezvous.served_by_launcher) {
    rendezvous.membership = find_membership(tokens, fmt::format("{} ranks on several hosts", job.world_size));
    if (rendezvous.membership.open && job.rank == 0) {
      Log({.rank = 0}).warn(open_job_text(endpoint_text({rendezvous.host, rendezvous.port})));
    }
  }
  const bool address_was_given = !rendezvous.bind_address.empty() && !one_host;
  if (rendezvous.bind_address.empty()) rendezvous.bind_address = transport_address(rendezvous.host);
  if (job.rank != 0 || rendezvous.served_by_launcher || rendezvous.listen_fd >= 0) return;
  Fd store = bind_tcp({store_address(job, address_was_given), rendezvous.port});
  start_listening(store.get());  // from here on nobody else can take the agreed port
  rendezvous.listen_fd = store.release();
}

void serve_meeting(StoreServer& server, const Job& job) {
  auto missing = std::make_shared<std::set<int>>();
  for (int rank = 1; rank < job.world_size; ++rank) missing->insert(rank);
  const auto meet_peer = [missing, size = job.world_size](int connection,
                                                          std::string& reason) -> std::unique_ptr<Admission> {
    if (is_own_user(peer_of(connection))) return std::make_unique<RankAdmission>(missing, size);
    reason = fmt::format("the ranks of this job belong to user {}", geteuid());
    return nullptr;
  };
  // The descriptor itself and no copy: once all have come nobody may listen at the name any more.
  const int listener = job.rendezvous.listen_fd;
  int listens = 0;
  socklen_t length = sizeof listens;
  if (getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    throw CommError(fmt::format("rank 0's socket (descriptor {}) is closed: its ranks have met before", listener),
                    {.rank = job.rank});
  }
  // Whoever may talk at all is a process of this user: ranks that connect early, or are many, are waited for.
  server.listen(Fd(listener), meet_peer, [missing] { return missing->empty(); }, std::nullopt);
}

Fd enter_meeting(const Job& job, double timeout_seconds) {
  const auto deadline = Clock::now() + seconds(timeout_seconds);
  Fd fd(fcntl(job.rendezvous.store_fd, F_DUPFD_CLOEXEC, 3));
  for (;;) {
    const auto reception = ask_to_enter(fd, job, deadline);
    if (reception.is_in) return fd;
    if (!reception.refusal.empty()) {
      throw ConfigError(fmt::format("rank 0 on this host refused rank {}: {}", job.rank, reception.refusal),
                        {.remedy = "give every rank the same world size and a number of its own", .rank = job.rank});
    }
    if (Clock::now() >= deadline) {
      throw CommError(
          fmt::format("rank {} waited {} s for rank 0 on this host to let it in", job.rank, timeout_seconds),
          {.remedy = "see what rank 0 is doing, or raise --timeout", .rank = job.rank});
    }
    // A rank 0 that is about to end, of a program that ran before, lets nobody in any more.
    std::this_thread::sleep_for(kRetryPause);
    fd = find_rank_zero(job, deadline, timeout_seconds);
  }
}

Fd enter_meeting_over(Fd connection, const Job& job, double timeout_seconds) {
  const auto reception = ask_to_enter(connection, job, Clock::now() + seconds(timeout_seconds));
  if (reception.is_in) return connection;
  const auto why =
      reception.refusal.empty() ? fmt::format(" within {:.3g} s", timeout_seconds) : ": " + reception.refusal;
  throw CommError(fmt::format("{} did not let this rank in{}", peer_text(connection.get()), why),
                  {.remedy = "see whether that process is the first rank of this host", .rank = job.rank});
}

std::optional<Job> join_launcher(const Environment& environment, const DetectOptions& options, double timeout_seconds,
                                 const TokenSource& tokens) {
  auto job = detect(environment, options);
  if (job) meet(*job, timeout_seconds, tokens);
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
