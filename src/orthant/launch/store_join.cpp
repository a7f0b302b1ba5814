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
  if (job.rank == 0) return serve_own_store(job);
  auto store = std::make_shared<JoinedStore>();
  store->client = std::make_shared<StoreClient>(enter_meeting(job, timeout_seconds), "served by rank 0");
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

int inherited_store(const std::string& variable, int rank, int world_size) {
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
  if (!is_own_user(peer_of(number))) return -1;
  fcntl(number, F_SETFD, FD_CLOEXEC);
  return number;
}

bool has_own_store(const Job& job) {
  const bool one_host = job.world_size == job.local_world_size;
  return one_host && (job.rendezvous.store_fd >= 0 || !job.rendezvous.meeting_key.empty());
}

std::shared_ptr<JoinedStore> join_own_store(const Job& job, double timeout_seconds) {
  const auto& key = job.rendezvous.meeting_key;
  if (key.empty()) return join_host_store(job);
  return shared_under(fmt::format("{}/{}", key, job.rank), [&] { return at_meeting(job, timeout_seconds); });
}

std::shared_ptr<JoinedStore> serve_own_store(const Job& job) {
  auto store = std::make_shared<JoinedStore>();
  auto [server_end, own_end] = stream_pair();
  const Log log({.rank = job.rank});
  store->server = std::make_shared<StoreServer>([log](const std::string& text) { log.warn(text); });
  store->server->add(std::move(server_end), getpid());
  serve_meeting(*store->server, job);
  store->server->start();
  store->client = std::make_shared<StoreClient>(std::move(own_end), "served by this rank");
  return store;
}

std::shared_ptr<JoinedStore> join_host_store(const Job& job) {
  const int fd = job.rendezvous.store_fd;
  if (fd < 0) return nullptr;
  return shared_under(std::to_string(fd), [&] { return over_inherited(fd); });
}

}  // namespace orthant::launch
