// Every tensor's memory on the CPU, counted and kept. Installed once per process, before its first tensor: exact live
// and peak bytes for the metrics, and large blocks that are reused from step to step instead of being mapped and
// faulted in again (PageArena). Small blocks are malloc's, see Note [Aligned blocks] in memory.cpp. The process has
// one: libtorch does.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "orthant/train/page_arena.h"

namespace orthant {

class CountingAllocator final : public c10::Allocator {
 public:
  // Blocks from this size on come from the arena.
  static constexpr std::size_t kLargeBytes = std::size_t{256} << 10;

  // Of the tensors alive now, and the most since the start or reset_peak(). As tensors ask for it: a scalar is 4 bytes.
  std::int64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_bytes_.store(live_bytes(), std::memory_order_relaxed); }

  // The newest tensor that got no memory, and what the others had then; `bytes` is 0 when none was refused.
  struct Refusal {
    std::int64_t bytes = 0;
    std::int64_t live_bytes = 0;
  };
  Refusal last_refusal() const { return {refused_bytes_.load(), refused_at_bytes_.load()}; }

  // From now on live_bytes() is written there, too: where somebody can read it who outlives this process. The place
  // stays. Before there are threads.
  void tell(std::atomic<std::int64_t>& gauge) { gauge_ = &gauge; }

  PageArena::Usage arena_usage() const { return arena_.usage(); }

  // Gives kept blocks back to the system, as after loading a model that is then sharded.
  void trim() { arena_.trim(); }

  // For libtorch. Any thread.
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, std::size_t bytes) const override;

 private:
  friend CountingAllocator& install_counting_allocator();
  CountingAllocator() = default;

  static void release(void* data);
  void* allocate_block(std::size_t bytes);
  void count(std::int64_t bytes);

  PageArena arena_;
  std::atomic<std::int64_t> live_bytes_ = 0;
  std::atomic<std::int64_t> peak_bytes_ = 0;
  std::atomic<std::int64_t> refused_bytes_ = 0;
  std::atomic<std::int64_t> refused_at_bytes_ = 0;
  std::atomic<std::int64_t>* gauge_ = nullptr;
};

// Makes it the allocator of CPU tensors and returns it; later calls return the same one. Tensors made before are freed
// as they were made and are not counted. Call it first from one thread.
CountingAllocator& install_counting_allocator();

}  // namespace orthant
