#include "orthant/shm/endpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace orthant::shm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kNap = std::chrono::milliseconds(50);
constexpr auto kCheckAfter = std::chrono::milliseconds(40);
// A spin is a number of rounds of looking and pausing, each ended by giving up the core: the rank waited for may have
// been woken on this very one. With a core for each rank a spin takes some 100 us, longer than a sleeper needs to wake;
// with more ranks than cores it is over at once.
constexpr int kPauses = 32;
constexpr int kSpinRounds = 80;
constexpr int kCrowdedSpinRounds = 2;
constexpr auto kSomebodyElseRan = std::chrono::microseconds(10);
constexpr auto kStepEvery = std::chrono::milliseconds(5);
// Who starts a call mostly waits for it at once; the progress thread gives that a moment before it looks.
constexpr auto kMoment = std::chrono::microseconds(50);

int num_usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace

Endpoint::Endpoint(int rank, size_t arena_bytes, int num_local_ranks)
    : rank_(rank),
      arena_(arena_bytes, rank),
      spin_rounds_(num_local_ranks <= num_usable_cores() ? kSpinRounds : kCrowdedSpinRounds) {
  peers_.emplace(rank, Peer{ArenaView(arena_.shared_mapping(), rank)});
}

Endpoint::~Endpoint() {
  stopping_ = true;
  if (progress_.joinable()) {
    calls_for_thread_.fetch_add(1);
    futex_wake_all(calls_for_thread_);
    arena_.header().doorbell.ring();
    progress_.join();
  }
  const auto now = Clock::now().time_since_epoch();  // one clock for all processes of a host
  arena_.header().left_at.store(static_cast<uint64_t>(std::chrono::nanoseconds(now).count()),
                                std::memory_order_release);
  for (const auto& [rank, peer] : peers_) {
    peer.arena.header().doorbell.ring();
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

void Endpoint::connect(int rank, int memory_fd, int pidfd) {
  try {
    // Ranks of a host make arenas alike; a little more than this machine has is a mistake.
    const auto most = std::max<size_t>(4 * arena_.mapping().bytes(), size_t{1} << 30);
    auto mapping = Mapping::open(memory_fd, sizeof(ArenaHeader), most, fmt::format("rank {}", rank));
    peers_.emplace(rank, Peer{ArenaView(std::move(mapping), rank), pidfd});
  } catch (...) {
    if (pidfd >= 0) close(pidfd);
    throw;
  }
}

bool Endpoint::is_gone(int rank) const {
  const auto& peer = peers_.at(rank);
  if (peer.arena.header().left_at.load(std::memory_order_acquire) != 0) return true;
  if (peer.pidfd < 0) return false;
  pollfd ended{peer.pidfd, POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

// Of the ranks that are gone, the one that explains the others: a process that ended without a word, else the first to
// leave.
std::optional<int> Endpoint::first_gone(const std::vector<int>& ranks) const {
  std::optional<int> first;
  const auto left_at = [this](int rank) {
    return peers_.at(rank).arena.header().left_at.load(std::memory_order_acquire);
  };
  for (const int rank : ranks) {
    if (is_gone(rank) && (!first || left_at(rank) < left_at(*first))) first = rank;
  }
  return first;
}

// True as soon as somebody has rung.
bool Endpoint::spin(uint32_t seen) {
  for (int round = 0; round < spin_rounds_; ++round) {
    for (int i = 0; i < kPauses; ++i) {
      if (arena_.header().doorbell.rings() != seen) return true;
      pause_briefly();
    }
    const auto before = Clock::now();
    sched_yield();
    if (Clock::now() - before > kSomebodyElseRan) step_aside();
  }
  return false;
}

// Two ranks that give each other the core in turn look busy to the scheduler and may stay together on one while another
// is idle. A rank that finds somebody else on its core moves to one of its own, without staying bound to it.
void Endpoint::step_aside() {
  const auto now = Clock::now();
  if (spin_rounds_ == kCrowdedSpinRounds || now - stepped_at_ < kStepEvery) return;
  stepped_at_ = now;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  int place = rank_ % CPU_COUNT(&allowed);
  int core = 0;
  while (!CPU_ISSET(core, &allowed) || place-- > 0) ++core;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  if (sched_setaffinity(0, sizeof(own), &own) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
}

// Fails the line when a rank it waits for is gone, or late for somebody who waits. What a peer did before it ended
// still counts, so the line is moved on once more after the look.
void Endpoint::check_peers(Line& line) {
  std::lock_guard lock(line.mutex);
  const auto gone = first_gone(line.awaited());
  if (gone) {
    while (line.advance()) line.moved_at = Clock::now();
    const auto still = line.awaited();
    if (std::find(still.begin(), still.end(), *gone) == still.end()) return;
    line.fail(std::make_exception_ptr(PeerFailure(*gone, fmt::format("rank {} is gone", *gone))));
    return;
  }
  const auto awaited = line.awaited();
  const double timeout_seconds = line.timeout_seconds;
  if (!awaited.empty() && line.num_waiters.load() != 0 && seconds_since(line.moved_at) > timeout_seconds) {
    line.fail(std::make_exception_ptr(PeerFailure(
        awaited.front(),
        fmt::format("rank {} did not come within {:.6g} s", fmt::join(awaited, ", rank "), timeout_seconds))));
  }
}

void Endpoint::wait(const std::shared_ptr<Line>& line, Operation& operation) {
  if (!operation.is_done()) {
    auto checked_at = Clock::now();
    {
      // Together, so that nobody sees this waiter beside the time of something long past.
      std::lock_guard lock(line->mutex);
      line->num_waiters.fetch_add(1);
      line->moved_at = checked_at;
    }
    while (!operation.is_done()) {
      const auto seen = arena_.header().doorbell.rings();
      bool moved = false;
      {
        std::lock_guard lock(line->mutex);
        moved = !operation.is_done() && line->advance();
        if (moved) line->moved_at = Clock::now();
      }
      if (moved || operation.is_done() || advance_others(line.get()) || spin(seen)) continue;
      arena_.header().doorbell.sleep(seen, kNap);
      if (Clock::now() - checked_at > kCheckAfter) {
        check_peers(*line);
        checked_at = Clock::now();
      }
    }
    line->num_waiters.fetch_sub(1);
    bool remains = false;
    {
      std::lock_guard lock(line->mutex);
      remains = !line->needs_nobody();
    }
    if (remains) open(line, true);
  }
  if (operation.error) std::rethrow_exception(operation.error);
}

void Endpoint::open(const std::shared_ptr<Line>& line, bool needs_thread) {
  {
    std::lock_guard lock(open_mutex_);
    if (std::find(open_.begin(), open_.end(), line) == open_.end()) open_.push_back(line);
    if (needs_thread && !progress_.joinable()) progress_ = std::thread([this] { run_progress(); });
  }
  if (!needs_thread) return;
  calls_for_thread_.fetch_add(1);
  futex_wake_all(calls_for_thread_);
}

std::vector<std::shared_ptr<Line>> Endpoint::open_lines() {
  std::lock_guard lock(open_mutex_);
  return open_;
}

// Helps the lines that nobody waits on; called by a thread that is itself stuck. True when anything moved.
bool Endpoint::advance_others(const Line* own) {
  bool moved = false;
  for (const auto& line : open_lines()) {
    if (line.get() == own || line->num_waiters.load() != 0) continue;
    std::unique_lock lock(line->mutex, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    if (line->advance()) {
      line->moved_at = Clock::now();
      moved = true;
    } else if (line->idle()) {
      std::lock_guard open_lock(open_mutex_);
      std::erase(open_, line);
    }
  }
  return moved;
}

// One round of the progress thread. `waiting` tells whether a line needs it but waits for a peer.
bool Endpoint::advance_as_thread(bool& waiting) {
  bool moved = false;
  for (const auto& line : open_lines()) {
    if (line->num_waiters.load() != 0) continue;  // who waits moves it on, and calls again if need be
    std::lock_guard lock(line->mutex);
    if (line->needs_nobody()) continue;
    if (line->advance()) {
      line->moved_at = Clock::now();
      moved = true;
    } else {
      waiting = true;
    }
  }
  return moved;
}

void Endpoint::run_progress() {
  auto checked_at = Clock::now();
  while (!stopping_) {
    const auto calls = calls_for_thread_.load();
    const auto seen = arena_.header().doorbell.rings();
    bool waiting = false;
    if (advance_as_thread(waiting)) continue;
    if (!waiting) {
      futex_wait(calls_for_thread_, calls, std::chrono::hours(1));
      std::this_thread::sleep_for(kMoment);
      continue;
    }
    arena_.header().doorbell.sleep(seen, kNap);
    if (Clock::now() - checked_at < kCheckAfter) continue;
    checked_at = Clock::now();
    for (const auto& line : open_lines()) {
      if (line->num_waiters.load() == 0) check_peers(*line);
    }
  }
}

}  // namespace orthant::shm
