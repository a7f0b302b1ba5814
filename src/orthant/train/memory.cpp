#include "orthant/train/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>

// Note [Aligned blocks]: small blocks are plain malloc's, aligned by hand. Up to version 2.37 the C library finds a
// place for an aligned block (posix_memalign) only in a free one that is larger by the alignment, which is never the
// one that was freed before. What lies between two such blocks is joined with them only when somebody asks for a large
// block or when the memory taken in advance (M_TOP_PAD) is used up. So a thread that makes a few small tensors and
// nothing else, as one that reads batches, would take new memory for each of them.

namespace orthant {
namespace {

// Stands right before a tensor's data, which has libtorch's alignment.
struct alignas(std::max_align_t) Header {
  std::size_t bytes = 0;
  CountingAllocator* owner = nullptr;
  void* block = nullptr;  // as the arena or malloc gave it
};

constexpr std::size_t kHeaderBytes = c10::gAlignment;
static_assert(sizeof(Header) <= kHeaderBytes);

// From the block's begin to the data, at most: a header, and what malloc's alignment lacks to libtorch's.
constexpr std::size_t kMostBefore = sizeof(Header) + c10::gAlignment - alignof(std::max_align_t);

std::size_t bytes_of_block(std::size_t bytes) {
  return bytes + (bytes >= CountingAllocator::kLargeBytes ? kHeaderBytes : kMostBefore);
}

// The first place in the block that is aligned and has room for a header before it.
char* data_in(void* block) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block) + sizeof(Header);
  return static_cast<char*>(block) + sizeof(Header) + (c10::gAlignment - begin % c10::gAlignment) % c10::gAlignment;
}

Header* header_of(void* data) {
  return reinterpret_cast<Header*>(static_cast<char*>(data) - sizeof(Header));
}

}  // namespace

void CountingAllocator::count(std::int64_t bytes) {
  const std::int64_t now = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (gauge_ != nullptr) gauge_->store(now, std::memory_order_relaxed);
  std::int64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void* CountingAllocator::allocate_block(std::size_t bytes) {
  const auto whole = bytes_of_block(bytes);
  try {
    if (bytes >= kLargeBytes) return arena_.allocate(whole);
    if (void* block = std::malloc(whole)) return block;
  } catch (const std::bad_alloc&) {
    // As if malloc had refused.
  }
  c10::profiledCPUMemoryReporter().OutOfMemory(whole);
  refused_bytes_.store(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  refused_at_bytes_.store(live_bytes(), std::memory_order_relaxed);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: ", whole, " bytes for one tensor, ", live_bytes(),
                   " bytes in use by others");
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &release, cpu};
  void* block = allocate_block(bytes);
  c10::profiledCPUMemoryReporter().New(block, bytes);
  void* data = data_in(block);
  new (header_of(data)) Header{bytes, this, block};
  count(static_cast<std::int64_t>(bytes));
  return {data, data, &release, cpu};
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  const Header header = *header_of(data);
  header.owner->count(-static_cast<std::int64_t>(header.bytes));
  c10::profiledCPUMemoryReporter().Delete(header.block);
  if (header.bytes < kLargeBytes) {
    std::free(header.block);
  } else {
    header.owner->arena_.release(header.block, bytes_of_block(header.bytes));
  }
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return &release;
}

void CountingAllocator::copy_data(void* destination, const void* source, std::size_t bytes) const {
  default_copy_data(destination, source, bytes);
}

CountingAllocator& install_counting_allocator() {
  // Never destroyed: tensors of static lifetime are freed after everything else.
  static CountingAllocator* const installed = [] {
    auto* allocator = new CountingAllocator();
    c10::SetCPUAllocator(allocator, /*priority=*/100);
    return allocator;
  }();
  return *installed;
}

}  // namespace orthant
