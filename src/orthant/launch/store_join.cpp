#include "orthant/launch/store_join.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/base/log.h"
#include "orthant/launch/meeting.h"
#include "orthant/launch/member_connection.h"
#include "orthant/launch/unix_sockets.h"

namespace orthant::launch {
namespace {

// What this process has joined, by descriptor or meeting. Each has a lock of its own: joining may take long.
struct Joined {
  struct Place {
    std::mutex mutex;
    std::weak_ptr<JoinedStore> store;
  };
  std::mutex mutex;
  std::map<std::string, Place> places;
};

Joined& joined() {
  static Joined all;
  return all;
}

std::shared_ptr<JoinedStore> over_inherited(int fd) {
  // A copy: whoever joins again after the first has left finds the descriptor as it was.
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) throw CommError(fmt::format("the launcher's connection (descriptor {}) is closed", fd));
  auto store = std::make_shared<JoinedStore>();
  store->client = std::make_shared<StoreClient>(std::move(copy), "served by the launcher");
  return store;
}

std::shared_ptr<JoinedStore> at_meeting(const Job& job, double timeout_seconds) {
  if (job.rank == 0) return serve_orthant_store(job);
  auto store = std::make_shared<JoinedStore>();
  store->client = std::make_shared<StoreClient>(enter_meeting(job, timeout_seconds), "served by rank 0");
  return store;
}

// Ranks that a foreign launcher started on several hosts: rank 0 serves.
bool is_across_hosts(const Job& job) {
  return job.rendezvous.membership.token || job.rendezvous.membership.open;
}

std::shared_ptr<JoinedStore> across_hosts(const Job& job, double timeout_seconds) {
  const auto& rendezvous = job.rendezvous;
  const Endpoint where{rendezvous.host, rendezvous.port};
  const Log log({.rank = job.rank});
  const Say say = [log](const std::string& text) { log.warn(text); };
  auto store = std::make_shared<JoinedStore>();
  if (job.rank != 0) {
    store->client = std::make_shared<StoreClient>(
        connect_as_member(where, rendezvous.membership, Purpose::kStore, "the store of rank 0", timeout_seconds, say),
        "served by rank 0");
    return store;
  }
  auto [server_end, own_end] = stream_pair();
  // A copy: whoever joins again after the first has left finds the descriptor as it was.
  Fd listener(fcntl(rendezvous.listen_fd, F_DUPFD_CLOEXEC, 3));
  if (!listener) throw CommError(fmt::format("rank 0's socket (descriptor {}) is closed", rendezvous.listen_fd));
  store->file_limit = std::make_unique<RaisedFileLimit>();
  store->server = std::make_shared<StoreServer>(say);
  store->server->add(std::move(server_end), getpid());
  store->server->listen(std::make_unique<Doorman>(std::move(listener), rendezvous.membership,
                                                  std::vector{Purpose::kStore},
                                                  fmt::format("the ranks' store at {}", endpoint_text(where)), say));
  store->server->start();
  store->client = std::make_shared<StoreClient>(std::move(own_end), "served by this rank");
  return store;
}

template <class Join>
std::shared_ptr<JoinedStore> shared_under(const std::string& key, const Join& join) {
  auto& all = joined();
  std::unique_lock all_lock(all.mutex);
  auto& place = all.places[key];  // stays where it is
  all_lock.unlock();
  std::lock_guard lock(place.mutex);
  auto store = place.store.lock();
  if (!store) place.store = store = join();
  return store;
}

// A number and what follows it up to the next colon.
bool take_number(std::string_view& text, uint64_t& number) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string store_variable(int fd, const std::string& rank, const std::string& world_size) {
  struct stat status{};
  fstat(fd, &status);
  return fmt::format("{}:{}:{}:{}", fd, status.st_ino, rank, world_size);
}

namespace {

// The socket in such a value; -1 when it does not fit.
int inherited_socket(const std::string& variable, int rank, int world_size) {
  std::string_view text = variable;
  uint64_t fd = 0, inode = 0, for_rank = 0, of_ranks = 0;
  for (auto* number : {&fd, &inode, &for_rank, &of_ranks}) {
    if (!take_number(text, *number)) return -1;
  }
  if (!text.empty() || fd > 1'000'000'000) return -1;
  if (for_rank != static_cast<uint64_t>(rank) || of_ranks != static_cast<uint64_t>(world_size)) return -1;
  const int number = static_cast<int>(fd);
  struct stat status{};
  if (fstat(number, &status) != 0 || !S_ISSOCK(status.st_mode) || status.st_ino != inode) return -1;
  fcntl(number, F_SETFD, FD_CLOEXEC);
  return number;
}

}  // namespace

int inherited_store(const std::string& variable, const Job& job) {
  const int fd = inherited_socket(variable, job.rank, job.world_size);
  const auto peer = fd >= 0 ? peer_of(fd) : std::nullopt;
  const bool may_be_remote = job.world_size != job.local_world_size;  // over TCP the launcher has seen to it
  return is_own_user(peer) || (!peer && may_be_remote) ? fd : -1;
}

bool has_orthant_store(const Job& job) {
  return job.rendezvous.store_fd >= 0 || !job.rendezvous.meeting_key.empty() || is_across_hosts(job);
}

std::shared_ptr<JoinedStore> join_orthant_store(const Job& job, double timeout_seconds) {
  const auto& key = job.rendezvous.meeting_key;
  if (is_across_hosts(job)) {
    return shared_under(fmt::format("{}:{}/{}", job.rendezvous.host, job.rendezvous.port, job.rank),
                        [&] { return across_hosts(job, timeout_seconds); });
  }
  if (key.empty()) {
    const int fd = job.rendezvous.store_fd;
    return shared_under(std::to_string(fd), [&] { return over_inherited(fd); });
  }
  return shared_under(fmt::format("{}/{}", key, job.rank), [&] { return at_meeting(job, timeout_seconds); });
}

std::shared_ptr<JoinedStore> serve_orthant_store(const Job& job) {
  auto store = std::make_shared<JoinedStore>();
  auto [server_end, own_end] = stream_pair();
  const Log log({.rank = job.rank});
  store->file_limit = std::make_unique<RaisedFileLimit>();
  store->server = std::make_shared<StoreServer>([log](const std::string& text) { log.warn(text); });
  store->server->add(std::move(server_end), getpid());
  serve_meeting(*store->server, job);
  store->server->start();
  store->client = std::make_shared<StoreClient>(std::move(own_end), "served by this rank");
  return store;
}

}  // namespace orthant::launch
