// Sleeping on a word of shared memory, and waking who sleeps there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace orthant::shm {

// Sleeps while `word` is `expected`, at most `timeout`. May return early for no reason; the caller looks again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout);

// Wakes everybody who sleeps on `word`, in any process that maps it.
void futex_wake_all(std::atomic<uint32_t>& word);

// What others ring when something changed that this rank may be waiting for. Lives in shared memory.
//
// A waiter reads rings(), looks at what it waits for, and only then sleeps until rings() has changed: a ring between
// the look and the sleep is never missed.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleepers{0};

  uint32_t rings() const { return count.load(std::memory_order_seq_cst); }
  void ring();
  void sleep(uint32_t seen, std::chrono::nanoseconds timeout);
};

}  // namespace orthant::shm
