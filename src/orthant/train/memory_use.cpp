#include "orthant/train/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "orthant/train/memory.h"

namespace orthant {

std::int64_t live_memory_bytes() {
  return install_counting_allocator().live_bytes();
}

std::int64_t peak_memory_bytes(at::Device device) {
  if (device.is_cpu()) return install_counting_allocator().peak_bytes();
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.has_index() ? device.index() : 0);
  return stats.allocated_bytes[0].peak;
}

}  // namespace orthant
