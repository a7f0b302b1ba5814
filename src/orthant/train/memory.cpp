#include "orthant/train/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <new>

namespace orthant {
namespace {

// Stands before each block; what follows keeps libtorch's alignment.
struct Header {
  std::size_t bytes = 0;
  CountingAllocator* owner = nullptr;
};

constexpr std::size_t kHeaderBytes = c10::gAlignment;
static_assert(sizeof(Header) <= kHeaderBytes);

}  // namespace

void CountingAllocator::count(std::int64_t bytes) {
  const std::int64_t now = live_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = peak_bytes_.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void* CountingAllocator::allocate_large(std::size_t bytes) {
  try {
    return arena_.allocate(bytes);
  } catch (const std::bad_alloc&) {
    c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "not enough memory: ", bytes, " bytes for one tensor, ", live_bytes(),
                     " bytes in use by others");
  }
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &release, cpu};
  const std::size_t whole = bytes + kHeaderBytes;
  void* block = bytes >= kLargeBytes ? allocate_large(whole) : c10::alloc_cpu(whole);
  c10::profiledCPUMemoryReporter().New(block, bytes);
  new (block) Header{bytes, this};
  count(static_cast<std::int64_t>(bytes));
  void* data = static_cast<char*>(block) + kHeaderBytes;
  return {data, data, &release, cpu};
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  void* block = static_cast<char*>(data) - kHeaderBytes;
  const Header header = *static_cast<Header*>(block);
  header.owner->live_bytes_.fetch_sub(static_cast<std::int64_t>(header.bytes), std::memory_order_relaxed);
  c10::profiledCPUMemoryReporter().Delete(block);
  if (header.bytes < kLargeBytes) {
    c10::free_cpu(block);
  } else {
    header.owner->arena_.release(block, header.bytes + kHeaderBytes);
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
