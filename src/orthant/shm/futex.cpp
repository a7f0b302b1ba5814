#include "orthant/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace orthant::shm {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(timeout.count() / 1000000000);
  time.tv_nsec = static_cast<long>(timeout.count() % 1000000000);
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::ring() {
  count.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(count);
}

void Doorbell::sleep(uint32_t seen, std::chrono::nanoseconds timeout) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(count, seen, timeout);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace orthant::shm
