#include "orthant/train/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "orthant/train/memory.h"

namespace orthant {

namespace {

c10::DeviceIndex index_of(at::Device device) {
  return device.has_index() ? device.index() : c10::DeviceIndex{0};
}

auto stats_of(at::Device device) {
  return at::getDeviceAllocator(device.type())->getDeviceStats(index_of(device));
}

auto allocated_on(at::Device device) {
  return stats_of(device).allocated_bytes[0];
}

}  // namespace

std::int64_t live_memory_bytes(at::Device device) {
  return device.is_cpu() ? install_counting_allocator().live_bytes() : allocated_on(device).current;
}

std::int64_t peak_memory_bytes(at::Device device) {
  return device.is_cpu() ? install_counting_allocator().peak_bytes() : allocated_on(device).peak;
}

std::int64_t reserved_memory_bytes(at::Device device) {
  return device.is_cpu() ? 0 : stats_of(device).reserved_bytes[0].current;
}

std::int64_t device_memory_bytes(at::Device device) {
  if (device.is_cpu()) return 0;
  return static_cast<std::int64_t>(at::getDeviceAllocator(device.type())->getMemoryInfo(index_of(device)).second);
}

}  // namespace orthant
